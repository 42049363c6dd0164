#include "store/stores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "store/blocking.h"
#include "store/testing/counting_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class StoresTest : public ::testing::Test {
 protected:
  Runtime runtime_{RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  Stores stores_{runtime_};
  TempFolder folder_;
};

TEST_F(StoresTest, KeysJoinWithOneSlash) {
  EXPECT_EQ((Location{nullptr, ""}.Key("a")), "a");
  EXPECT_EQ((Location{nullptr, "p"}.Key("a")), "p/a");
  EXPECT_EQ((Location{nullptr, "p/"}.Key("a")), "p/a");
  EXPECT_EQ((Location{nullptr, "p"}.Key("a/b")), "p/a/b");
}

TEST_F(StoresTest, OneStoreAFolderHoweverItIsSpelled) {
  std::filesystem::create_directories(folder_ / "sub/deep");
  std::filesystem::create_directory_symlink(folder_ / "sub", folder_ / "link");
  const auto plain = stores_.Open(folder_ / "sub");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->prefix, "");
  for (const std::string& same : {"file://" + (folder_ / "sub"), folder_ / "sub/", folder_ / "./sub",
                                  folder_ / "sub/deep/..", folder_ / "link", folder_ / "link/deep/.."}) {
    const auto location = stores_.Open(same);
    ASSERT_TRUE(location.ok()) << location.status();
    EXPECT_EQ(location->store, plain->store) << same;
  }
  EXPECT_NE(stores_.Open(folder_ / "other")->store, plain->store);
  EXPECT_EQ(plain->store->Uri("x"), std::filesystem::canonical(folder_ / "sub").string() + "/x");
}

TEST_F(StoresTest, AViewReadsFilesOfItsFoldersOnly) {
  std::filesystem::create_directories(folder_ / "in");
  std::filesystem::create_directories(folder_ / "out");
  std::ofstream(folder_ / "in/a") << "a";
  std::ofstream(folder_ / "out/b") << "b";
  const std::string in = std::filesystem::canonical(folder_ / "in");
  Stores bounded(stores_, std::vector<std::string>{in});
  Stores none(stores_, std::vector<std::string>());
  Stores all(stores_, std::nullopt);
  const auto code = [](Stores& stores, const std::string& uri) {
    const auto object = stores.OpenObject(uri);
    return object.ok() ? HeadBlocking(*object->store, object->prefix).status().code() : object.status().code();
  };
  EXPECT_EQ(code(bounded, folder_ / "in/a"), absl::StatusCode::kOk);
  EXPECT_EQ(code(bounded, folder_ / "out/b"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(none, folder_ / "in/a"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(all, folder_ / "out/b"), absl::StatusCode::kOk);
  EXPECT_FALSE(stores_.reads_only());
  const OwnFolder own{.path = folder_ / "out", .owner = geteuid()};
  for (Stores* const view : {&bounded, &none, &all}) {
    EXPECT_TRUE(view->reads_only());
    EXPECT_EQ(view->Open("mem://x")->store, stores_.Open("mem://x")->store);
    EXPECT_EQ(view->OpenOwn(own)->store, stores_.OpenOwn(own)->store);
  }
}

TEST_F(StoresTest, AnObjectIsItsFolderAndName) {
  const auto file = stores_.OpenObject(folder_ / "a/b.tar");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->prefix, "b.tar");
  EXPECT_EQ(file->store, stores_.Open(folder_ / "a")->store);
  EXPECT_TRUE(PutBlocking(*file->store, file->prefix, AsBytes("x")).ok());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/b.tar"));

  const auto relative = stores_.OpenObject("some-name");
  ASSERT_TRUE(relative.ok()) << relative.status();
  EXPECT_EQ(relative->store->Uri(relative->prefix), (std::filesystem::current_path() / "some-name").string());

  const auto root = stores_.OpenObject("/name");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->store->Uri("name"), "/name");
}

TEST_F(StoresTest, AnObjectNeedsAName) {
  for (const std::string& uri :
       {std::string("mem://m"), std::string("mem://m/"), folder_ / "", std::string("."), std::string("a/..")}) {
    EXPECT_EQ(stores_.OpenObject(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
}

TEST_F(StoresTest, MemoryIsSharedByName) {
  const auto one = stores_.Open("mem://m/prefix");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->prefix, "prefix");
  EXPECT_TRUE(PutBlocking(*one->store, one->Key("k"), AsBytes("x")).ok());
  const auto two = stores_.OpenObject("mem://m/prefix/k");
  EXPECT_EQ(*ReadAll(*two->store, two->prefix, 10), "x");
  EXPECT_NE(stores_.Open("mem://other")->store, one->store);
  EXPECT_EQ(one->store->Uri("k"), "mem://m/k");
}

// The endpoint distinguishes two stores of one URI, also if a profile says which endpoint is meant.
TEST_F(StoresTest, ABucketIsIdentifiedByItsEndpoint) {
  const std::string config = folder_ / "config";
  std::ofstream(config) << "[default]\nendpoint_url = http://127.0.0.1:9\n"
                        << "[profile other]\nendpoint_url = http://127.0.0.1:10\n";
  for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}) unsetenv(name);
  setenv("AWS_CONFIG_FILE", config.c_str(), 1);
  setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  unsetenv("AWS_PROFILE");
  EXPECT_EQ(stores_.Open("s3://bkt/x")->store->traits().identity, "http://127.0.0.1:9");
  setenv("AWS_PROFILE", "other", 1);
  Stores other(runtime_);
  EXPECT_EQ(other.Open("s3://bkt/x")->store->traits().identity, "http://127.0.0.1:10");
  for (const char* name : {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_PROFILE"}) unsetenv(name);
  EXPECT_EQ(stores_.Open(folder_ / "x")->store->traits().identity, "");
}

TEST_F(StoresTest, ABucketOfAnotherChoiceIsAnotherStore) {
  setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
  const AwsChoice choice{.endpoint_url = "http://127.0.0.1:2"};
  Stores& chosen = stores_.With(choice);
  EXPECT_EQ(&stores_.With(choice), &chosen);
  EXPECT_EQ(&stores_.With({}), &stores_);
  const auto usual = stores_.Open("s3://bucket");
  const auto other = chosen.Open("s3://bucket");
  ASSERT_TRUE(usual.ok() && other.ok()) << usual.status() << other.status();
  EXPECT_EQ(usual->store->traits().identity, "http://127.0.0.1:1");
  EXPECT_EQ(other->store->traits().identity, "http://127.0.0.1:2");
  unsetenv("AWS_ENDPOINT_URL");
  EXPECT_FALSE(stores_.With({.profile = "no such profile"}).Open("s3://bucket").ok());
  EXPECT_EQ(chosen.Open(folder_ / "x")->store, stores_.Open(folder_ / "x")->store);
  EXPECT_EQ(chosen.Open("mem://m")->store, stores_.Open("mem://m")->store);
}

// A cache goes by this principal.
TEST_F(StoresTest, ABucketTellsWhoseCredentialsReadIt) {
  const std::string config = folder_ / "config";
  std::ofstream(config) << "[default]\naws_access_key_id = ALICE\naws_secret_access_key = s\n"
                        << "[profile other]\naws_access_key_id = BOB\naws_secret_access_key = s\n";
  for (const char* name : {"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) unsetenv(name);
  setenv("AWS_CONFIG_FILE", config.c_str(), 1);
  setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  EXPECT_EQ(stores_.Open("s3://bkt/x")->store->traits().principal, "key ALICE");
  EXPECT_EQ(stores_.With({.profile = "other"}).Open("s3://bkt/x")->store->traits().principal, "key BOB");
  EXPECT_EQ(stores_.Open(folder_ / "x")->store->traits().principal, "");
  for (const char* name : {"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}) unsetenv(name);
}

TEST_F(StoresTest, AStoreIsPutAroundEveryOneThatIsOpened) {
  std::atomic<int> reads{0};
  std::atomic<int> wrapped{0};
  Stores stores(runtime_, [&](std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    if (below->traits().root == "mem://refused/") return absl::UnavailableError("no");
    ++wrapped;
    return std::make_unique<CountingStore>(std::move(below), reads);
  });
  for (const std::string& uri : {std::string("mem://m/k"), folder_ / "sub/k"}) {
    const auto object = stores.OpenObject(uri);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(object->store->Uri(object->prefix).substr(object->store->traits().root.size()), "k");
    EXPECT_TRUE(PutBlocking(*object->store, "k", AsBytes("x")).ok());
    EXPECT_EQ(*ReadAll(*object->store, "k", 10), "x");
    EXPECT_EQ(stores.OpenObject(uri)->store, object->store) << "once";
  }
  EXPECT_EQ(reads, 2);
  EXPECT_EQ(wrapped, 2);
  EXPECT_TRUE(absl::IsUnavailable(stores.Open("mem://refused").status()));
  EXPECT_TRUE(absl::IsUnavailable(stores.Open("mem://refused").status())) << "and nothing is kept of it";
}

TEST_F(StoresTest, RefusesUnknownSchemes) {
  for (const char* uri : {"http://host/x", "gs://bucket", "s3:/bucket", ""}) {
    EXPECT_EQ(stores_.Open(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
    EXPECT_EQ(stores_.OpenObject(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
}

TEST_F(StoresTest, TheRootOfTheFileSystemIsAFolderToo) {
  const auto root = stores_.Open("/");
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(root->store->Uri("x"), "/x");
}

TEST_F(StoresTest, ALinkLoopIsAnError) {
  std::filesystem::create_symlink(folder_ / "b", folder_ / "a");
  std::filesystem::create_symlink(folder_ / "a", folder_ / "b");
  const auto loop = stores_.Open(folder_ / "a");
  EXPECT_FALSE(loop.ok());
  EXPECT_THAT(ToStd(loop.status().message()), HasSubstr(folder_ / "a"));
}

}  // namespace
}  // namespace millrace
