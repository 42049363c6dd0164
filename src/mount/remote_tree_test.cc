#include "mount/remote_tree.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "store/blocking.h"
#include "store/memory_store.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

Patience NoHurry() {
  return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}};
}

class RemoteTreeTest : public ::testing::Test {
 protected:
  void Put(const std::string& key, const std::string& text = "x") {
    ASSERT_TRUE(PutBlocking(store_, key, AsBytes(text)).ok());
  }
  // "name" of a file, "name/" of a folder.
  std::vector<std::string> List(const std::string& folder) { return List(tree_, folder); }
  static std::vector<std::string> List(const RemoteTree& tree, const std::string& folder) {
    std::vector<std::string> names;
    std::string continuation;
    do {
      const absl::StatusOr<RemoteTree::Page> page = tree.List(folder, continuation, NoHurry());
      EXPECT_TRUE(page.ok()) << page.status();
      for (const RemoteTree::Entry& entry : page->entries) {
        names.push_back(entry.name + (entry.node.is_folder() ? "/" : ""));
        EXPECT_EQ(entry.node.key, folder + names.back());
      }
      continuation = page->continuation;
    } while (!continuation.empty());
    return names;
  }

  MemoryStore store_{"data"};
  RemoteTree tree_{store_, std::chrono::seconds(1)};
};

TEST_F(RemoteTreeTest, KeysMakeFoldersAndFiles) {
  Put("a", "12345");
  Put("d/b");
  Put("d/e/f");
  EXPECT_THAT(List(""), ElementsAre("a", "d/"));
  EXPECT_THAT(List("d/"), ElementsAre("b", "e/"));
  const absl::StatusOr<Node> file = tree_.Lookup("", "a", NoHurry());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size, 5u);
  EXPECT_FALSE(file->etag.empty());
  EXPECT_EQ(tree_.Lookup("", "d", NoHurry())->key, "d/");
  EXPECT_EQ(tree_.Lookup("d/", "e", NoHurry())->key, "d/e/");
  EXPECT_TRUE(absl::IsNotFound(tree_.Lookup("", "nothing", NoHurry()).status()));
  EXPECT_TRUE(absl::IsNotFound(tree_.Lookup("a/", "b", NoHurry()).status()));
}

TEST_F(RemoteTreeTest, AFolderHidesTheFileOfItsName) {
  Put("a");
  Put("a-1");
  Put("a/x");
  EXPECT_THAT(List(""), ElementsAre("a/", "a-1"));
  EXPECT_TRUE(tree_.Lookup("", "a", NoHurry())->is_folder());
}

TEST_F(RemoteTreeTest, AlsoIfItIsOnAnotherPage) {
  Put("a");
  for (int i = 0; i < 2500; ++i) Put(fmt::format("a-{:04}", i));
  Put("a/x");
  std::vector<std::string> names = List("");
  EXPECT_EQ(names.size(), 2501u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 2501u);
  EXPECT_EQ(std::count(names.begin(), names.end(), "a"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "a/"), 1);
}

TEST_F(RemoteTreeTest, WhatNoFileCanBeCalledIsLeftOut) {
  Put("d/");  // the marker of a folder
  Put("d//x");
  Put("d/./x");
  Put("d/../x");
  Put("d/" + std::string(256, 'n'));
  Put("d/ok");
  EXPECT_THAT(List("d/"), ElementsAre("ok"));
  EXPECT_TRUE(absl::IsNotFound(tree_.Lookup("d/", "..", NoHurry()).status()));
  EXPECT_TRUE(tree_.Lookup("", "d", NoHurry())->is_folder());
}

TEST_F(RemoteTreeTest, MillracesOwnFilesAreHiddenIfThatIsWanted) {
  for (const char* key :
       {".millrace/index", "cats/.millrace/index", "cats/1.jpg", "x.millrace/1.jpg", ".millrace-1", "dogs/.millrace"})
    Put(key);
  const RemoteTree hiding(store_, std::chrono::seconds(1), RemoteTree::OwnFiles::kHidden);
  EXPECT_THAT(List(hiding, ""), ElementsAre(".millrace-1", "cats/", "dogs/", "x.millrace/"));
  EXPECT_THAT(List(hiding, "dogs/"), ElementsAre(".millrace"));  // a file that only has this name
  EXPECT_THAT(List(hiding, "cats/"), ElementsAre("1.jpg"));
  for (const char* folder : {"", "cats/"})
    EXPECT_TRUE(hiding.Lookup(folder, ".millrace", NoHurry())->is_folder()) << folder;
  EXPECT_THAT(List(""), ElementsAre(".millrace/", ".millrace-1", "cats/", "dogs/", "x.millrace/"));
  EXPECT_TRUE(tree_.Lookup("cats/", ".millrace", NoHurry())->is_folder());
  // Somebody who names the folder itself wants to see it.
  EXPECT_THAT(List(hiding, ".millrace/"), ElementsAre("index"));
}

// "name" of a file, "name/" of a folder, "name@" of a link.
std::vector<std::string> ListWithLinks(const RemoteTree& tree, const std::string& folder) {
  std::vector<std::string> names;
  std::string continuation;
  do {
    const absl::StatusOr<RemoteTree::Page> page = tree.List(folder, continuation, NoHurry());
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok()) break;
    for (const RemoteTree::Entry& entry : page->entries) {
      names.push_back(entry.name + (entry.node.is_folder() ? "/" : tree.IsLink(entry.node) ? "@" : ""));
    }
    continuation = page->continuation;
  } while (!continuation.empty());
  return names;
}

TEST_F(RemoteTreeTest, LinksAreObjectsOfANameOfTheirOwn) {
  for (const char* key : {"d/a.rclonelink", "d/file", "d/file.rclonelink", "d/folder.rclonelink", "d/folder/x",
                          "d/.rclonelink", "d/..rclonelink", "d/...rclonelink", "d/z.rclonelink/x"})
    Put(key);
  Put("d/empty.rclonelink", "");
  Put("d/long.rclonelink", std::string(4096, 'x'));
  Put("d/most.rclonelink", std::string(4095, 'x'));
  const RemoteTree links(store_, std::chrono::seconds(1), RemoteTree::OwnFiles::kShown, RemoteTree::Links::kAreLinks);
  EXPECT_THAT(ListWithLinks(links, "d/"),
              ElementsAre("...rclonelink", "..rclonelink", ".rclonelink", "a@", "empty.rclonelink", "file", "folder/",
                          "long.rclonelink", "most@", "z.rclonelink/"));
  EXPECT_EQ(List("d/").size(), 12u);
  const absl::StatusOr<Node> link = links.Lookup("d/", "a", NoHurry());
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->key, "d/a.rclonelink");
  EXPECT_TRUE(links.IsLink(*link));
  EXPECT_FALSE(tree_.IsLink(*link));
  EXPECT_EQ(links.Lookup("d/", "file", NoHurry())->key, "d/file");
  EXPECT_EQ(links.Lookup("d/", "folder", NoHurry())->key, "d/folder/");
  EXPECT_EQ(links.Lookup("d/", "empty.rclonelink", NoHurry())->key, "d/empty.rclonelink");
  EXPECT_EQ(links.Lookup("d/", "z.rclonelink", NoHurry())->key, "d/z.rclonelink/");
  for (const char* name : {"a.rclonelink", "empty", "long", "z", "nothing", "file.rclonelink"})
    EXPECT_TRUE(absl::IsNotFound(links.Lookup("d/", name, NoHurry()).status())) << name;
  EXPECT_TRUE(absl::IsNotFound(tree_.Lookup("d/", "a", NoHurry()).status()));
}

TEST_F(RemoteTreeTest, ALinkGivesWayAlsoToWhatIsOnAnotherPage) {
  Put("file");
  Put("file.rclonelink");
  Put("folder.rclonelink");
  Put("folder/x");
  Put("link.rclonelink");
  Put("link.rclonelink.rclonelink");
  for (int i = 0; i < 1200; ++i) {
    Put(fmt::format("file-{:04}", i));
    Put(fmt::format("folder.s{:04}", i));
    Put(fmt::format("link-{:04}", i));
    Put(fmt::format("link.s{:04}", i));
    Put(fmt::format("link.rclonelink-{:04}", i));
  }
  const RemoteTree links(store_, std::chrono::seconds(1), RemoteTree::OwnFiles::kShown, RemoteTree::Links::kAreLinks);
  const std::vector<std::string> names = ListWithLinks(links, "");
  EXPECT_EQ(names.size(), 6004u);
  for (const char* name : {"file", "folder/", "link@", "link.rclonelink@"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  for (const char* name : {"file@", "folder@"}) EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
}

// Compares random keys with what a tree of files would hold.
TEST_F(RemoteTreeTest, IsTheTreeThatTheKeysMake) {
  Rng rng(3);
  std::map<std::string, std::set<std::string>> expected;  // by folder
  std::set<std::string> keys;
  for (int i = 0; i < 400; ++i) {
    std::string key;
    for (uint64_t depth = rng.Below(4); depth > 0; --depth) key += std::string(1, "ab-."[rng.Below(3)]) + "/";
    key += std::string(1, "abc-"[rng.Below(4)]) + (rng.Below(2) == 0 ? "" : "-");
    keys.insert(key);
  }
  for (const std::string& key : keys) Put(key);
  for (const std::string& key : keys) {
    std::string folder;
    for (size_t slash; (slash = key.find('/', folder.size())) != std::string::npos;) {
      expected[folder].insert(key.substr(folder.size(), slash - folder.size()) + "/");
      folder = key.substr(0, slash + 1);
    }
    expected[folder].insert(key.substr(folder.size()));
  }
  for (auto& [folder, names] : expected) {
    std::set<std::string> visible;
    for (const std::string& name : names) {
      if (name.ends_with('/') || !names.contains(name + "/")) visible.insert(name);
    }
    const std::vector<std::string> listed = List(folder);
    EXPECT_EQ(std::set<std::string>(listed.begin(), listed.end()), visible) << folder;
    EXPECT_EQ(listed.size(), visible.size());
    for (const std::string& name : listed) {
      const bool is_folder = name.ends_with('/');
      const std::string plain = is_folder ? name.substr(0, name.size() - 1) : name;
      EXPECT_EQ(tree_.Lookup(folder, plain, NoHurry())->is_folder(), is_folder) << folder << name;
    }
  }
}

// Keeps each Head unanswered until the store is destroyed.
class SilentStore final : public ForwardingStore {
 public:
  void Head(std::string /*key*/, HeadOptions /*options*/, HeadCallback done) override {
    kept_.push_back(std::move(done));
  }
  ~SilentStore() override {
    for (HeadCallback& done : kept_) std::move(done)(absl::CancelledError("closed"));
  }

 private:
  std::vector<HeadCallback> kept_;
};

TEST_F(RemoteTreeTest, AStoreThatDoesNotAnswerIsNotWaitedForForEver) {
  Put("a");
  SilentStore silent;
  const RemoteTree tree(silent, std::chrono::seconds(1));
  const Patience none{std::chrono::steady_clock::now(), {}};
  EXPECT_TRUE(absl::IsDeadlineExceeded(tree.Look("a", none).status()));
  Patience interrupted = NoHurry();
  interrupted.interrupted = [] { return true; };
  EXPECT_TRUE(absl::IsCancelled(tree.Look("a", interrupted).status()));
}

}  // namespace
}  // namespace millrace
