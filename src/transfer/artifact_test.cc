#include "transfer/artifact.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/unique_fd.h"
#include "devstore/devstore.h"
#include "store/blocking.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class ArtifactTest : public ::testing::Test {
 protected:
  ArtifactTest() : runtime_({.io_threads = 1, .cpu_threads = 2}), stores_(runtime_) {
    root_ = fs::path(::testing::TempDir()) / fmt::format("artifact-{}", getpid());
    fs::remove_all(root_);
    fs::create_directories(root_ / "data");
    uri_ = (root_ / "data").string();
  }
  ~ArtifactTest() override { fs::remove_all(root_); }

  ArtifactPlaces Places() {
    Stores& stores = only_reads_ ? reader_ : stores_;
    return {stores,
            {.beside = {.store = stores.Open(uri_)->store, .prefix = ".millrace/table-1"},
             .cache_folder = (root_ / "cache").string(),
             .stem = "table-1",
             .suffix = ".table",
             .one_version = one_version_,
             .title = "the table",
             .max_lock_wait = max_lock_wait_}};
  }

  // Returns the opened file, and whether it is locked, which it is if no one else has locked it.
  static std::pair<UniqueFd, bool> TryLock(const fs::path& path) {
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const bool locked = flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    return {std::move(fd), locked};
  }

  absl::Status Check(const Artifact& artifact) const {
    return AsText(artifact.bytes()) == contents_ ? absl::OkStatus() : absl::DataLossError("other contents");
  }

  absl::Status Write(OpenArtifact open) {
    ++built_;
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, open());
    RETURN_IF_ERROR(out->Append(AsBytes(contents_)));
    return out->Commit().status();
  }

  absl::StatusOr<SharedArtifact> Get() {
    const auto check = [this](const SharedArtifact& artifact) { return Check(*artifact); };
    return Places().GetOrBuild(check, check, [this](OpenArtifact open) { return Write(open); });
  }

  void ExpectAt(const absl::StatusOr<SharedArtifact>& artifact, const std::string& end) {
    ASSERT_TRUE(artifact.ok()) << artifact.status();
    EXPECT_EQ(AsText((*artifact)->bytes()), contents_);
    EXPECT_THAT((*artifact)->uri(), ::testing::EndsWith(end));
  }

  Runtime runtime_;
  Stores stores_;
  Stores reader_{stores_, std::nullopt};  // a view of it
  bool only_reads_ = false;
  fs::path root_;
  std::string uri_;
  std::string contents_ = "contents";
  bool one_version_ = true;
  std::chrono::milliseconds max_lock_wait_ = kMaxFolderWait;
  int built_ = 0;
};

TEST_F(ArtifactTest, IsBuiltOnceBesideTheData) {
  for (int i = 0; i < 2; ++i) ExpectAt(Get(), "data/.millrace/table-1");
  EXPECT_EQ(built_, 1);
}

TEST_F(ArtifactTest, IsBuiltAgainIfItIsDamaged) {
  ASSERT_TRUE(Get().ok());
  fs::resize_file(root_ / "data/.millrace/table-1", 3);
  ASSERT_TRUE(Get().ok());
  EXPECT_EQ(built_, 2);
}

TEST_F(ArtifactTest, GoesToTheCacheFolderIfTheDataCannotBeWrittenTo) {
  // A file in the way of `.millrace/` stops root, too.
  std::ofstream(root_ / "data/.millrace") << "no folder";
  for (int i = 0; i < 2; ++i) ExpectAt(Get(), "cache/index/table-1.table");
  EXPECT_EQ(built_, 1);
}

TEST_F(ArtifactTest, GoesToTheCacheFolderIfTheDataAreOnlyRead) {
  for (const bool one_version : {true, false}) {
    one_version_ = one_version;
    only_reads_ = true;
    fs::remove_all(root_ / "cache");
    built_ = 0;
    for (int i = 0; i < 2; ++i) ExpectAt(Get(), "cache/index/table-1.table");
    EXPECT_EQ(built_, 1);
    EXPECT_TRUE(fs::is_empty(root_ / "data"));
  }
  // One that is there is taken.
  only_reads_ = false;
  fs::remove_all(root_ / "cache");
  ExpectAt(Get(), "data/.millrace/table-1");
  only_reads_ = true;
  ExpectAt(Get(), "data/.millrace/table-1");
}

// Any user who may read the folder can hold its lock.
TEST_F(ArtifactTest, IsBuiltIfAnotherProcessHoldsTheFolder) {
  const auto [folder, held] = TryLock(root_ / "data");
  ASSERT_TRUE(held);
  max_lock_wait_ = std::chrono::milliseconds(1);
  ExpectAt(Get(), "data/.millrace/table-1");
  // The processes of this user still wait for each other.
  const auto lock = Places().Lock();
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_FALSE(TryLock(root_ / "cache/index/table-1.lock").second);
}

TEST_F(ArtifactTest, LocksTheFolderOnlyIfItIsBuiltThere) {
  for (const bool only_reads : {false, true}) {
    only_reads_ = only_reads;
    const auto lock = Places().Lock();
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(TryLock(root_ / "data").second, only_reads);
  }
}

TEST_F(ArtifactTest, TheLockInTheCacheFolderIsOneUsersAlone) {
  only_reads_ = true;
  const fs::path path = root_ / "cache/index/table-1.lock";
  ASSERT_TRUE(Places().Lock().ok());
  fs::permissions(path, fs::perms(0666));  // as older versions have left it
  {
    const auto lock = Places().Lock();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms(0600));
    EXPECT_FALSE(TryLock(path).second);
  }
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(path.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  const auto [other, held] = TryLock(path);  // as its owner can
  ASSERT_TRUE(held);
  EXPECT_TRUE(Places().Lock().ok()) << "which is not waited for";
}

// A file behind a link that leads out of the folders that may be read is not mapped.
TEST_F(ArtifactTest, IsNotReadFromOutsideTheFoldersOfAReader) {
  std::ofstream(root_ / "outside") << contents_;
  fs::create_directories(root_ / "data/.millrace");
  fs::create_symlink(root_ / "outside", root_ / "data/.millrace/table-1");
  Stores bounded(stores_, std::vector<std::string>{fs::canonical(root_ / "data")});
  const auto check = [this](const SharedArtifact& artifact) { return Check(*artifact); };
  for (Stores* const stores : {&reader_, &bounded}) {
    ArtifactPlaces places(*stores, {.beside = {.store = stores->Open(uri_)->store, .prefix = ".millrace/table-1"},
                                    .cache_folder = {},
                                    .stem = "table-1",
                                    .suffix = {},
                                    .title = {}});
    const auto found = places.Open(ArtifactPlaces::Place::kBeside, check, check);
    EXPECT_EQ(found.status().code(), stores == &reader_ ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
  }
}

// Artifacts of one set of credentials are not for another one. Folders and public data have no principal.
TEST_F(ArtifactTest, EachPrincipalHasAStemOfItsOwn) {
  EXPECT_EQ(StemFor("stem", {.principal = ""}), "stem");
  const std::string one = StemFor("stem", {.principal = "key ALICE"});
  EXPECT_THAT(one, ::testing::MatchesRegex("stem[+][0-9a-f]+"));
  EXPECT_EQ(one, StemFor("stem", {.principal = "key ALICE"}));
  EXPECT_NE(one, StemFor("stem", {.principal = "key BOB"}));
}

TEST_F(ArtifactTest, LinksAndFilesOfOthersInTheCacheFolderAreNotUsed) {
  only_reads_ = true;
  ExpectAt(Get(), "cache/index/table-1.table");
  const fs::path path = root_ / "cache/index/table-1.table";
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0600));
  std::ofstream(root_ / "thesis") << "two years of work";
  fs::remove(path);
  fs::create_symlink(root_ / "thesis", path);
  ExpectAt(Get(), "cache/index/table-1.table");
  EXPECT_EQ(built_, 2) << "the link is replaced, and what it points to stays";
  EXPECT_EQ(fs::file_size(root_ / "thesis"), 17u);
  EXPECT_FALSE(fs::is_symlink(path));
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(path.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  ExpectAt(Get(), "cache/index/table-1.table");
  EXPECT_EQ(built_, 3);
}

TEST_F(ArtifactTest, OfDataInMemory) {
  only_reads_ = true;  // which is no place that others see
  uri_ = "mem://kept";
  for (int i = 0; i < 2; ++i) ExpectAt(Get(), "mem://kept/.millrace/table-1");
  EXPECT_EQ(built_, 1);
}

TEST_F(ArtifactTest, WhatCannotBeBuiltLeavesNothing) {
  const auto check = [](const SharedArtifact&) { return absl::OkStatus(); };
  const auto file = Places().GetOrBuild(check, check, [](OpenArtifact open) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, open());
    EXPECT_TRUE(out->Append(AsBytes("half")).ok());
    return absl::CancelledError("stopped");
  });
  EXPECT_TRUE(absl::IsCancelled(file.status())) << file.status();
  EXPECT_FALSE(fs::exists(root_ / "data/.millrace/table-1"));
}

/// Data on S3: what is kept beside them is copied to the cache folder.
class ArtifactOnS3Test : public ArtifactTest {
 protected:
  void Start(std::vector<std::string> faults = {}) {
    DevstoreOptions options;
    options.buckets = {"bkt"};
    options.faults = std::move(faults);
    server_ = *Devstore::Start(options);
    setenv("AWS_ENDPOINT_URL", server_->url().c_str(), 1);
    setenv("AWS_ACCESS_KEY_ID", options.access_key.c_str(), 1);
    setenv("AWS_SECRET_ACCESS_KEY", options.secret_key.c_str(), 1);
    uri_ = "s3://bkt";
  }
  ~ArtifactOnS3Test() override {
    for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}) unsetenv(name);
  }

  std::vector<std::string> Cached() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_ / "cache/index")) names.push_back(entry.path().filename());
    return names;
  }

  std::unique_ptr<Devstore> server_;
};

TEST_F(ArtifactOnS3Test, IsPublishedAndFetchedByOthers) {
  Start();
  ExpectAt(Get(), "cache/index/table-1.table");
  EXPECT_EQ(*ReadAll(*stores_.Open(uri_)->store, ".millrace/table-1", 100), contents_);
  fs::remove_all(root_ / "cache");  // as on another machine
  for (int i = 0; i < 2; ++i) ExpectAt(Get(), "cache/index/table-1.table");
  EXPECT_EQ(built_, 1);
}

TEST_F(ArtifactOnS3Test, IsNotPublishedIfTheDataAreOnlyRead) {
  Start();
  only_reads_ = true;
  for (const bool one_version : {true, false}) {
    one_version_ = one_version;
    fs::remove_all(root_ / "cache");
    built_ = 0;
    for (int i = 0; i < 2; ++i) ExpectAt(Get(), "cache/index/table-1.table");
    EXPECT_EQ(built_, 1);
    EXPECT_TRUE(ListAll(*stores_.Open(uri_)->store, "")->empty());
  }
}

TEST_F(ArtifactOnS3Test, IsKeptInTheCacheFolderIfItCannotBePublished) {
  Start({"PUT bkt/* status=403"});
  for (int i = 0; i < 2; ++i) ExpectAt(Get(), "cache/index/table-1.table");
  EXPECT_EQ(built_, 1);
}

TEST_F(ArtifactOnS3Test, IsBuiltIfTheCredentialsMayNotSeeThatItIsMissing) {
  Start({"HEAD bkt/* status=403"});  // of a missing object, for those who may not list
  ASSERT_TRUE(Get().ok());
  EXPECT_EQ(built_, 1);
}

TEST_F(ArtifactOnS3Test, AStoreThatDoesNotTellIsNoReasonToBuildIt) {
  Start({"HEAD bkt/* status=401"});
  EXPECT_EQ(Get().status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(built_, 0);
}

TEST_F(ArtifactOnS3Test, ANewVersionReplacesTheCopyOfTheOneBefore) {
  one_version_ = false;
  Start();
  const auto check = [](const SharedArtifact&) { return absl::OkStatus(); };
  for (const char* contents : {"first", "second"}) {
    contents_ = contents;
    ExpectAt(Places().Build([this](OpenArtifact open) { return Write(open); }), "s3://bkt/.millrace/table-1");
    EXPECT_EQ(Cached().size(), 1u);
  }
  // Another machine has published it.
  ASSERT_TRUE(PutBlocking(*stores_.Open(uri_)->store, ".millrace/table-1", AsBytes("third")).ok());
  const auto third = Places().Open(ArtifactPlaces::Place::kBeside, check, check);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(AsText((*third)->bytes()), "third");
  EXPECT_EQ(Cached().size(), 1u);
}

TEST_F(ArtifactOnS3Test, OneBuiltInPlaceOfThatBesideCountsUntilThatIsAnother) {
  one_version_ = false;
  Start({"PUT bkt/* status=403 after=1 count=1"});
  const auto check = [](const SharedArtifact&) { return absl::OkStatus(); };
  const auto build = [this](OpenArtifact open) { return Write(open); };
  const auto newest = [&]() -> std::string {
    for (const auto place : ArtifactPlaces::kPlaces) {
      if (const auto found = Places().Open(place, check, check); found.ok()) {
        return std::string(AsText((*found)->bytes()));
      }
    }
    return "";
  };
  contents_ = "first";
  ExpectAt(Places().Build(build), "s3://bkt/.millrace/table-1");
  EXPECT_EQ(newest(), "first");
  contents_ = "second";  // cannot be put beside the data
  ASSERT_TRUE(Places().Build(build).ok());
  EXPECT_EQ(newest(), "second");
  EXPECT_EQ(*ReadAll(*stores_.Open(uri_)->store, ".millrace/table-1", 100), "first");
  contents_ = "third";
  ExpectAt(Places().Build(build), "s3://bkt/.millrace/table-1");
  EXPECT_EQ(newest(), "third");
  EXPECT_EQ(Cached().size(), 1u) << "what was built before is not kept";
}

TEST_F(ArtifactOnS3Test, ACopyThatArrivesDamagedIsFetchedAgain) {
  Start();
  ASSERT_TRUE(Get().ok());
  fs::remove_all(root_ / "cache");
  int verified = 0;
  const auto check = [](const SharedArtifact&) { return absl::OkStatus(); };
  const auto verify = [&](const SharedArtifact&) {
    return ++verified == 1 ? absl::DataLossError("a bit was lost") : absl::OkStatus();
  };
  EXPECT_TRUE(Places().Open(ArtifactPlaces::Place::kBeside, check, verify).ok());
  EXPECT_EQ(verified, 2);
  const auto never = [](const SharedArtifact&) { return absl::DataLossError("a bit was lost"); };
  fs::remove_all(root_ / "cache");
  EXPECT_TRUE(absl::IsDataLoss(Places().Open(ArtifactPlaces::Place::kBeside, check, never).status()));
  EXPECT_TRUE(Cached().empty());
}

}  // namespace
}  // namespace millrace
