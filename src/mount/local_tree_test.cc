#include "mount/local_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/memory_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LocalTreeTest : public ::testing::Test {
 protected:
  std::shared_ptr<WrittenFile> File(const std::string& key, bool in_store = false) {
    auto file = in_store ? std::make_shared<WrittenFile>(services_, Node{.key = key, .etag = "e"})
                         : std::make_shared<WrittenFile>(services_, key);
    file->inode = ++inodes_;
    return file;
  }

  MemoryStore store_{"data"};
  MemoryBudget memory_{1 << 20};
  const WrittenFile::Services services_{.store = store_, .memory = memory_};
  uint64_t inodes_ = 100;
  LocalTree tree_;
};

TEST_F(LocalTreeTest, AFileIsWrittenOnceAtATime) {
  const auto file = File("a");
  EXPECT_TRUE(tree_.Begin(file));
  EXPECT_FALSE(tree_.Begin(File("a")));
  EXPECT_EQ(tree_.Find("a"), file);
  EXPECT_EQ(tree_.FindInode(file->inode), file);
  tree_.End(file, /*if_idle=*/false);
  EXPECT_EQ(tree_.Find("a"), nullptr);
  EXPECT_EQ(tree_.FindInode(file->inode), nullptr);
  EXPECT_TRUE(tree_.Begin(File("a")));
  tree_.End(file, /*if_idle=*/false);  // that of another file stays
  EXPECT_NE(tree_.Find("a"), nullptr);
}

TEST_F(LocalTreeTest, AFileEndsWithItsLastHandle) {
  const auto file = File("a", /*in_store=*/true);
  EXPECT_EQ(tree_.Attach(file->inode), nullptr);
  EXPECT_TRUE(tree_.Begin(file));
  EXPECT_EQ(tree_.Attach(file->inode), file);
  EXPECT_FALSE(tree_.Detach(*file));
  tree_.End(file, /*if_idle=*/true);
  EXPECT_EQ(tree_.Find("a"), file);
  EXPECT_TRUE(tree_.Detach(*file));
  tree_.End(file, /*if_idle=*/true);
  EXPECT_EQ(tree_.Find("a"), nullptr);
  // One that has something to commit stays.
  const auto changed = File("b");
  EXPECT_TRUE(tree_.Begin(changed));
  EXPECT_TRUE(tree_.Detach(*changed));
  tree_.End(changed, /*if_idle=*/true);
  EXPECT_EQ(tree_.Find("b"), changed);
}

TEST_F(LocalTreeTest, AFileThatIsNotCommittedEndsUnlessItIsWrittenAgain) {
  const auto file = File("a");  // a new one, so there is something to commit
  ASSERT_TRUE(tree_.Begin(file));
  ASSERT_TRUE(tree_.Detach(*file));
  ASSERT_EQ(tree_.Attach(file->inode), file);  // opened while it is committed by the handle before
  EXPECT_FALSE(tree_.EndUnwritten(file));
  EXPECT_EQ(tree_.Find("a"), file);
  ASSERT_TRUE(tree_.Detach(*file));
  EXPECT_TRUE(tree_.EndUnwritten(file));
  EXPECT_EQ(tree_.Find("a"), nullptr);
  EXPECT_EQ(tree_.Attach(file->inode), nullptr);
}

TEST_F(LocalTreeTest, AFileWithoutANameStaysForItsReaders) {
  const auto file = File("a", /*in_store=*/true);
  EXPECT_TRUE(tree_.Begin(file));
  EXPECT_TRUE(tree_.Detach(*file));
  tree_.AddReader(file->inode);
  EXPECT_TRUE(tree_.HasReaders(file->inode));
  ASSERT_TRUE(file->Unlink({std::chrono::steady_clock::now() + std::chrono::minutes(5), {}}).ok());
  tree_.Unname(*file);
  EXPECT_EQ(tree_.Find("a"), nullptr);
  EXPECT_TRUE(tree_.Begin(File("a")));
  tree_.End(file, /*if_idle=*/true);
  EXPECT_EQ(tree_.FindInode(file->inode), file);
  tree_.RemoveReader(file->inode);
  EXPECT_FALSE(tree_.HasReaders(file->inode));
  tree_.End(file, /*if_idle=*/true);
  EXPECT_EQ(tree_.FindInode(file->inode), nullptr);
  EXPECT_NE(tree_.Find("a"), nullptr);
}

TEST_F(LocalTreeTest, AFileIsFoundByItsOtherNameOnceItIsRenamed) {
  const auto file = File("d/a", /*in_store=*/true);
  EXPECT_TRUE(tree_.Begin(file));
  tree_.Rename(file, "e/b");
  EXPECT_EQ(tree_.Find("d/a"), nullptr);
  EXPECT_EQ(tree_.Find("e/b"), file);
  EXPECT_THAT(tree_.FilesBelow("d/"), IsEmpty());
  EXPECT_THAT(tree_.FilesBelow("e/"), ElementsAre(file));
}

TEST_F(LocalTreeTest, FoldersAreThereByThemselvesOrByWhatIsBelow) {
  EXPECT_FALSE(tree_.HasFolder("d/"));
  EXPECT_TRUE(tree_.AddFolder("d/e/f/"));
  EXPECT_TRUE(tree_.HasFolder("d/"));
  EXPECT_TRUE(tree_.HasBelow("d/e/"));
  EXPECT_FALSE(tree_.HasBelow("d/e/f/"));
  EXPECT_FALSE(tree_.HasFolder("d/e/fg/"));
  tree_.RemoveFolder("d/e/f/");
  EXPECT_FALSE(tree_.HasFolder("d/"));
  ASSERT_TRUE(tree_.Begin(File("x/y")));
  EXPECT_TRUE(tree_.HasFolder("x/"));
  EXPECT_TRUE(tree_.HasBelow("x/"));
}

TEST_F(LocalTreeTest, NamesAreThoseOfOneFolder) {
  for (const char* key : {"d/a", "d/b/1", "d/b/2", "d/b0", "d/z", "e"}) ASSERT_TRUE(tree_.Begin(File(key)));
  ASSERT_TRUE(tree_.Begin(File("d/old", /*in_store=*/true)));  // the store shows it
  for (const char* key : {"d/b/", "d/c/", "d/c/x/", "d/f/g/", "e/"}) ASSERT_TRUE(tree_.AddFolder(key));
  EXPECT_THAT(tree_.NamesIn("d/"), ElementsAre("a", "b/", "b0", "c/", "f/", "z"));
  EXPECT_THAT(tree_.NamesIn("d/b/"), ElementsAre("1", "2"));
  EXPECT_THAT(tree_.NamesIn(""), ElementsAre("d/", "e", "e/"));
  EXPECT_THAT(tree_.NamesIn("d/c/x/"), IsEmpty());
}

TEST_F(LocalTreeTest, AFolderMovesWithThoseBelowIt) {
  for (const char* key : {"d/", "d/e/", "da/"}) ASSERT_TRUE(tree_.AddFolder(key));
  EXPECT_TRUE(tree_.RenameFolder("d/", "x/"));
  EXPECT_THAT(tree_.NamesIn(""), ElementsAre("da/", "x/"));
  EXPECT_THAT(tree_.NamesIn("x/"), ElementsAre("e/"));
}

TEST_F(LocalTreeTest, OnlySoManyFoldersAreRemembered) {
  for (size_t i = 0; i < LocalTree::kMaxFolders; ++i) ASSERT_TRUE(tree_.AddFolder(std::to_string(i) + "/"));
  EXPECT_FALSE(tree_.AddFolder("one/"));
  EXPECT_TRUE(tree_.AddFolder("5/"));
  tree_.RemoveFolder("5/");
  EXPECT_TRUE(tree_.AddFolder("one/"));
}

TEST_F(LocalTreeTest, TheEndOfAFileIsWaitedFor) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  EXPECT_TRUE(tree_.WaitForEnd("a", {now(), {}}).ok());
  const auto file = File("a");
  ASSERT_TRUE(tree_.Begin(file));
  EXPECT_FALSE(tree_.WaitForEnd("a", {now() + std::chrono::milliseconds(20), {}}).ok());
  tree_.End(file, /*if_idle=*/false);
  EXPECT_TRUE(tree_.WaitForEnd("a", {now(), {}}).ok());
}

}  // namespace
}  // namespace millrace
