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
  std::shared_ptr<WrittenFile> File(const std::string& key, bool replaces = false) {
    auto file = std::make_shared<WrittenFile>(store_, memory_, key, PutOptions());
    file->replaces = replaces;
    return file;
  }

  MemoryStore store_{"data"};
  MemoryBudget memory_{1 << 20};
  LocalTree tree_;
};

TEST_F(LocalTreeTest, AFileIsWrittenOnceAtATime) {
  EXPECT_TRUE(tree_.Begin(File("a")));
  EXPECT_FALSE(tree_.Begin(File("a")));
  EXPECT_NE(tree_.Find("a"), nullptr);
  tree_.End("a");
  EXPECT_EQ(tree_.Find("a"), nullptr);
  EXPECT_TRUE(tree_.Begin(File("a")));
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
  ASSERT_TRUE(tree_.Begin(File("d/old", /*replaces=*/true)));  // the store shows it
  for (const char* key : {"d/b/", "d/c/", "d/c/x/", "d/f/g/", "e/"}) ASSERT_TRUE(tree_.AddFolder(key));
  EXPECT_THAT(tree_.NamesIn("d/"), ElementsAre("a", "b/", "b0", "c/", "f/", "z"));
  EXPECT_THAT(tree_.NamesIn("d/b/"), ElementsAre("1", "2"));
  EXPECT_THAT(tree_.NamesIn(""), ElementsAre("d/", "e", "e/"));
  EXPECT_THAT(tree_.NamesIn("d/c/x/"), IsEmpty());
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
  ASSERT_TRUE(tree_.Begin(File("a")));
  EXPECT_FALSE(tree_.WaitForEnd("a", {now() + std::chrono::milliseconds(20), {}}).ok());
  tree_.End("a");
  EXPECT_TRUE(tree_.WaitForEnd("a", {now(), {}}).ok());
}

}  // namespace
}  // namespace millrace
