#include "store/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/atomic_file.h"
#include "base/crypto.h"
#include "store/blocking.h"
#include "store/file_system.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileStoreTest : public ::testing::Test {
 protected:
  void Touch(const std::string& name, const std::string& contents = "x") {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    std::ofstream(folder_ / name) << contents;
  }

  std::vector<std::string> Keys(const std::string& prefix = "") {
    const auto all = ListAll(store_, prefix);
    EXPECT_TRUE(all.ok()) << all.status();
    std::vector<std::string> keys;
    if (all.ok()) {
      for (const ObjectInfo& object : *all) keys.push_back(object.key);
    }
    return keys;
  }

  // Returns the names of all files in the folder, temporary files included.
  std::vector<std::string> Entries() {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) names.push_back(entry.path().string().substr(folder_.path().size() + 1));
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
  FileStore store_{folder_.path()};
};

// Runs the file-system calls of this thread, and of threads it starts, as a user without rights.
class AsNobody {
 public:
  AsNobody() {
    setfsgid(65534);
    setfsuid(65534);
  }
  ~AsNobody() {
    setfsuid(geteuid());
    setfsgid(getegid());
  }
};

// The store may read less than links reach.
TEST_F(FileStoreTest, ReadsWithinFoldersOnly) {
  for (const char* name : {"in/a", "in/deep/b", "out/c", "also/d"}) Touch(name, name);
  fs::create_symlink("../out/c", folder_ / "in/link");
  fs::create_symlink("deep/b", folder_ / "in/inside");
  fs::create_directory_symlink(folder_ / "out", folder_ / "in/folder");
  fs::create_symlink("../also/d", folder_ / "in/other");
  const std::string root = fs::canonical(folder_.path());
  FileStore within(root, {root + "/in", root + "/also"});
  const auto listed = ListAll(within, "in/");
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::vector<std::string> keys;
  for (const ObjectInfo& object : *listed) keys.push_back(object.key);
  EXPECT_THAT(keys, ElementsAre("in/a", "in/deep/b", "in/inside", "in/other"));
  EXPECT_EQ(*ReadAll(within, "in/inside", 100), "in/deep/b");
  EXPECT_EQ(*ReadAll(within, "in/other", 100), "also/d");
  for (const char* key : {"in/link", "in/folder/c", "out/c"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(HeadBlocking(within, key).status())) << key;
    const absl::Status denied = ReadAll(within, key, 100).status();
    EXPECT_TRUE(absl::IsPermissionDenied(denied)) << denied;
    EXPECT_THAT(denied.message(), HasSubstr("allow the folder"));
  }
  EXPECT_TRUE(absl::IsPermissionDenied(ListAll(within, "out/").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(PutBlocking(within, "in/new", AsBytes("x")).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(within.WritePieces("in/new", {}).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(DeleteBlocking(within, "in/a")));
  EXPECT_TRUE(absl::IsPermissionDenied(within.RemoveTemporary("in/")));
  EXPECT_TRUE(fs::exists(folder_ / "in/a"));
  // It does not read from a cache the bytes that other stores have read through links.
  EXPECT_NE(within.traits().identity, store_.traits().identity);
}

TEST_F(FileStoreTest, SpansOfSeveralPiecesAreVerified) {
  std::string text(size_t{5} << 19, 'a');  // two and a half pieces
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i % 251);
  const std::vector<SpanChecksum> right = {
      {{5, 700'000}, Crc32c(AsBytes(std::string_view(text).substr(5, 700'000)))},
      {{800'000, 1'700'000}, Crc32c(AsBytes(std::string_view(text).substr(800'000, 1'700'000)))}};
  std::string read(2'600'000, '\0');
  std::vector<ByteRange> damaged;
  const GetOptions options{.range = {5, read.size()}, .checksums = right, .damaged = &damaged};
  Touch("a", text);
  EXPECT_TRUE(GetBlocking(store_, "a", AsWritableBytes(read), options).ok());
  EXPECT_THAT(damaged, IsEmpty());
  text[2'200'000] ^= 1;
  Touch("a", text);
  EXPECT_EQ(GetBlocking(store_, "a", AsWritableBytes(read), options).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(damaged, ElementsAre(ByteRange{800'000, 1'700'000}));
}

TEST_F(FileStoreTest, ServesFilesThatOthersWrote) {
  Touch("a/b.txt", "hello");
  EXPECT_EQ(*ReadAll(store_, "a/b.txt", 100), "hello");
  EXPECT_EQ(store_.Uri("a/b.txt"), folder_ / "a/b.txt");
}

TEST_F(FileStoreTest, MakesItsFolderWhenWriting) {
  FileStore store(folder_ / "new/deep");
  EXPECT_TRUE(PutBlocking(store, "x/y/z", AsBytes("1")).ok());
  EXPECT_EQ(*ReadAll(store, "x/y/z", 100), "1");
}

TEST_F(FileStoreTest, ListsFilesAndFoldersThatSortAwkwardly) {
  const std::vector<std::string> keys{"a",    "a!",    "a+/x",    "a-",    "a-/b", "a.b/c",
                                      "a.b0", "dir/a", "dir/a-b", "dir/b", "dir0", "e/f/g/h"};
  std::vector<std::string> sorted;
  for (const std::string& key : keys) {
    if (key == "a-") continue;  // a folder has that name
    Touch(key);
    sorted.push_back(key);
  }
  std::sort(sorted.begin(), sorted.end());
  EXPECT_THAT(Keys(), ElementsAreArray(sorted));
}

TEST_F(FileStoreTest, EveryKeyIsAPlaceToContinue) {
  std::vector<std::string> keys;
  for (const char* folder : {"", "a/", "a/b/", "a-/", "a0/", "b/c/d/"}) {
    for (const char* name : {"0", "f-", "f.x", "f0", "z"}) keys.push_back(std::string(folder) + name);
  }
  for (const std::string& key : keys) Touch(key);
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    // A store of its own has no walk to take up: the continuation alone must do.
    FileStore fresh(folder_.path());
    ListOptions options;
    options.start_after = keys[i];
    std::vector<std::string> rest;
    do {
      const auto page = ListBlocking(fresh, options);
      ASSERT_TRUE(page.ok());
      for (const ObjectInfo& object : page->objects) rest.push_back(object.key);
      options.continuation = page->continuation;
    } while (!options.continuation.empty());
    EXPECT_THAT(rest, ElementsAreArray(keys.begin() + i + 1, keys.end())) << keys[i];
  }
}

TEST_F(FileStoreTest, AContinuationWorksInAnotherStoreOfTheFolder) {
  for (const char* key : {"a/1", "a/2", "a0", "b/1", "c"}) Touch(key);
  for (const char* delimiter : {"", "/"}) {
    ListOptions options;
    options.max_keys = 1;
    options.delimiter = delimiter;
    std::vector<std::string> seen;
    do {
      FileStore fresh(folder_.path());
      const auto page = ListBlocking(fresh, options);
      ASSERT_TRUE(page.ok());
      for (const ObjectInfo& object : page->objects) seen.push_back(object.key);
      for (const std::string& prefix : page->common_prefixes) seen.push_back(prefix);
      options.continuation = page->continuation;
    } while (!options.continuation.empty() && seen.size() < 20);
    if (*delimiter == '\0') {
      EXPECT_THAT(seen, ElementsAre("a/1", "a/2", "a0", "b/1", "c"));
    } else {
      EXPECT_THAT(seen, ElementsAre("a/", "a0", "b/", "c"));
    }
  }
}

TEST_F(FileStoreTest, EmptyFoldersAreNoPrefixes) {
  fs::create_directories(folder_ / "empty/deeper");
  Touch("full/deeper/x");
  const auto page = ListBlocking(store_, {.delimiter = "/"});
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(page->common_prefixes, ElementsAre("full/"));
}

TEST_F(FileStoreTest, HidesFilesBeingWritten) {
  auto writer = store_.Write("dir/big", {});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(AsBytes("x")).ok());
  ASSERT_EQ(Entries().size(), 1u);  // there is one
  const std::string temporary = fs::path(Entries()[0]).filename();
  EXPECT_TRUE(IsTemporaryName(temporary));
  EXPECT_THAT(Keys(), IsEmpty());
  EXPECT_EQ(HeadBlocking(store_, "dir/" + temporary).status().code(), absl::StatusCode::kInvalidArgument);
  writer->reset();
  EXPECT_THAT(Entries(), IsEmpty());
}

TEST_F(FileStoreTest, RemovesWhatKilledWritersHaveLeft) {
  for (const char* path : {"x", ".millrace-tmp-1", "dir/.millrace-tmp-2", "dir/y", "dir/deep/.millrace-tmp-3"})
    Touch(path);
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(25);
  for (const char* path : {".millrace-tmp-1", "dir/.millrace-tmp-2", "dir/deep/.millrace-tmp-3"})
    std::filesystem::last_write_time(store_.Uri(path), old);
  ASSERT_TRUE(store_.RemoveTemporary("").ok());
  EXPECT_EQ(Entries().size(), 4u);
  ASSERT_TRUE(store_.RemoveTemporary("dir/").ok());
  EXPECT_THAT(Entries(), ElementsAre("dir/deep/.millrace-tmp-3", "dir/y", "x"));
  EXPECT_TRUE(store_.RemoveTemporary("none/").ok());
  EXPECT_EQ(store_.RemoveTemporary("../x/").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileStoreTest, PutLeavesNoTemporaryFilesNeitherDoFailures) {
  PutOptions absent;
  absent.only_if_absent = true;
  EXPECT_TRUE(PutBlocking(store_, "k", AsBytes("1")).ok());
  EXPECT_TRUE(PutBlocking(store_, "k2", AsBytes("1"), absent).ok());
  EXPECT_FALSE(PutBlocking(store_, "k", AsBytes("2"), absent).ok());
  EXPECT_THAT(Entries(), ElementsAre("k", "k2"));
}

TEST_F(FileStoreTest, AFileAndAFolderCannotShareAName) {
  Touch("file");
  Touch("folder/x");
  PutOptions absent;
  absent.only_if_absent = true;
  for (const char* key : {"file/below", "file/far/below", "folder"}) {
    for (const PutOptions& options : {PutOptions(), absent}) {
      const auto put = PutBlocking(store_, key, AsBytes("1"), options);
      EXPECT_EQ(put.status().code(), absl::StatusCode::kInvalidArgument) << key << " " << put.status();
      EXPECT_THAT(ToStd(put.status().message()), HasSubstr("a folder cannot hold"));
    }
  }
  EXPECT_THAT(Entries(), ElementsAre("file", "folder/x"));
}

TEST_F(FileStoreTest, RefusesNamesThatAreTooLong) {
  EXPECT_TRUE(PutBlocking(store_, std::string(255, 'n'), AsBytes("1")).ok());
  EXPECT_EQ(PutBlocking(store_, std::string(256, 'n'), AsBytes("1")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FileStoreTest, ListingAFileOrNothingIsNotFound) {
  Touch("file");
  EXPECT_EQ(ListAll(*std::make_unique<FileStore>(folder_ / "file"), "").status().code(), absl::StatusCode::kNotFound);
  const auto missing = ListAll(*std::make_unique<FileStore>(folder_ / "missing"), "");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ToStd(missing.status().message()), HasSubstr(folder_ / "missing"));
}

TEST_F(FileStoreTest, FollowsLinksButNotForEver) {
  Touch("real/deep/x");
  Touch("y");
  fs::create_symlink("../y", folder_ / "real/link-to-file");
  fs::create_directory_symlink("real", folder_ / "alias");
  fs::create_directory_symlink("..", folder_ / "real/up");
  fs::create_directory_symlink(".", folder_ / "real/deep/self");
  fs::create_symlink("nowhere", folder_ / "dangling");
  fs::create_symlink("loop2", folder_ / "loop1");
  fs::create_symlink("loop1", folder_ / "loop2");
  EXPECT_THAT(Keys(), ElementsAre("alias/deep/x", "alias/link-to-file", "real/deep/x", "real/link-to-file", "y"));
  EXPECT_THAT(Keys("real/"), ElementsAre("real/deep/x", "real/link-to-file"));
  EXPECT_THAT(Keys("real/up/"), IsEmpty());
  EXPECT_EQ(*ReadAll(store_, "alias/link-to-file", 10), "x");
  EXPECT_EQ(HeadBlocking(store_, "loop1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(HeadBlocking(store_, "dangling").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileStoreTest, PipesAndSocketsAreNoObjects) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  Touch("x");
  EXPECT_THAT(Keys(), ElementsAre("x"));
  std::string one(1, '?');
  GetOptions options;
  options.range = {0, 1};
  const auto got =
      GetBlocking(store_, "pipe", {reinterpret_cast<std::byte*>(one.data()), 1}, options);  // must not wait
  EXPECT_EQ(got.status().code(), absl::StatusCode::kNotFound) << got.status();
}

TEST_F(FileStoreTest, TheEtagChangesWithEveryKindOfChange) {
  Touch("k", "one");
  const std::string first = HeadBlocking(store_, "k")->etag;
  EXPECT_EQ(HeadBlocking(store_, "k")->etag, first);
  fs::last_write_time(folder_ / "k", fs::last_write_time(folder_ / "k") + std::chrono::nanoseconds(1));
  const std::string touched = HeadBlocking(store_, "k")->etag;
  EXPECT_NE(touched, first);
  Touch("k", "longer");
  EXPECT_NE(HeadBlocking(store_, "k")->etag, touched);
  const std::string before = HeadBlocking(store_, "k")->etag;
  ASSERT_TRUE(PutBlocking(store_, "k", AsBytes("longer")).ok());
  EXPECT_NE(HeadBlocking(store_, "k")->etag, before);
}

// Writes other bytes of the same number into the file and sets its time back, as cp -p, tar -x and rsync --inplace do.
void WriteWithSameTime(const std::string& path, std::string_view text) {
  struct stat there {};
  ASSERT_EQ(stat(path.c_str(), &there), 0);
  const std::string now = fmt::format("{}.{}", there.st_ctim.tv_sec, there.st_ctim.tv_nsec);
  for (;;) {  // until the clock of the file system has ticked
    const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    const std::array<timespec, 2> times = {there.st_atim, there.st_mtim};
    ASSERT_EQ(futimens(fd.get(), times.data()), 0);
    struct stat written {};
    ASSERT_EQ(fstat(fd.get(), &written), 0);
    ASSERT_TRUE(written.st_size == there.st_size && written.st_ino == there.st_ino);
    if (fmt::format("{}.{}", written.st_ctim.tv_sec, written.st_ctim.tv_nsec) != now) return;
  }
}

TEST_F(FileStoreTest, OtherBytesUnderTheOldTimeAreAnotherVersion) {
  Touch("k", "old");
  const ObjectInfo old = *HeadBlocking(store_, "k");
  WriteWithSameTime(folder_ / "k", "new");
  EXPECT_NE(HeadBlocking(store_, "k")->etag, old.etag);
  EXPECT_NE(ListBlocking(store_, {})->objects.front().etag, old.etag);
  std::string bytes(3, '?');
  GetOptions options;
  options.range = {0, 3};
  options.if_match = old.etag;
  const auto got = GetBlocking(store_, "k", {reinterpret_cast<std::byte*>(bytes.data()), 3}, options);
  EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition) << got.status();
}

TEST_F(FileStoreTest, AWriterTellsTheEtagThatReadersFind) {
  for (const bool only_if_absent : {true, false}) {
    const std::string key = only_if_absent ? "new" : "replaced";
    if (!only_if_absent) Touch(key, "old");
    const auto put =
        PutBlocking(store_, key, AsBytes("bytes"), {.only_if_absent = only_if_absent, .modified_ms = 1000});
    ASSERT_TRUE(put.ok()) << put.status();
    EXPECT_EQ(HeadBlocking(store_, key)->etag, put->etag);
    const auto writer = store_.Write(key + "-in-pieces", {.only_if_absent = only_if_absent});
    ASSERT_TRUE(writer.ok() && (*writer)->Append(AsBytes("bytes")).ok());
    const auto written = (*writer)->Commit();
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(HeadBlocking(store_, key + "-in-pieces")->etag, written->etag);
  }
}

TEST_F(FileStoreTest, NoRightsIsPermissionDenied) {
  Touch("secret/k");
  Touch("shut/k");
  fs::permissions(folder_ / "secret/k", fs::perms::none);
  fs::permissions(folder_ / "shut", fs::perms::none);
  fs::permissions(folder_.path(), fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  {
    const AsNobody nobody;
    FileStore store(folder_.path());  // its threads inherit the user
    std::string one(1, '?');
    GetOptions options;
    options.range = {0, 1};
    const auto got = GetBlocking(store, "secret/k", {reinterpret_cast<std::byte*>(one.data()), 1}, options);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kPermissionDenied) << got.status();
    EXPECT_THAT(ToStd(got.status().message()), HasSubstr(folder_ / "secret/k"));
    EXPECT_EQ(ListAll(store, "").status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(ListAll(store, "shut/").status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(PutBlocking(store, "shut/new", AsBytes("x")).status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(store.Write("shut/new", {}).status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_EQ(DeleteBlocking(store, "shut/k").code(), absl::StatusCode::kPermissionDenied);
  }
  fs::permissions(folder_ / "shut", fs::perms::owner_all);
}

// The limit of a file's size stands in for the full disk, which a test cannot make everywhere; both end write() early.
TEST_F(FileStoreTest, NoSpaceIsResourceExhaustedAndLeavesNothing) {
  ASSERT_TRUE(PutBlocking(store_, "k", AsBytes("old")).ok());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit tight{1 << 20, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string large(2 << 20, 'x');
  const auto put = PutBlocking(store_, "k", AsBytes(large));
  auto writer = store_.Write("k", {});
  const absl::Status append = (*writer)->Append(AsBytes(large));
  const absl::Status commit = (*writer)->Commit().status();
  writer->reset();
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(put.status().code(), absl::StatusCode::kResourceExhausted) << put.status();
  EXPECT_THAT(ToStd(put.status().message()), HasSubstr(folder_ / "k"));
  EXPECT_EQ(commit.code(), absl::StatusCode::kResourceExhausted) << commit;  // what was written in part must not appear
  EXPECT_TRUE(append.ok() || append == commit) << append << ": it is known by the commit, if not before";
  EXPECT_EQ(*ReadAll(store_, "k", 100), "old");
  EXPECT_THAT(Entries(), ElementsAre("k"));
}

TEST(CheckFileKey, RefusesWhatAFolderCannotHold) {
  for (const char* key : {"a", "a/b", ".hidden", "..a", "a..", "...", "-", " ", ".millrace"}) {
    EXPECT_TRUE(CheckFileKey("u", key).ok()) << key;
  }
  for (const char* key : {"/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/.", ".millrace-tmp-1",
                          "a/.millrace-tmp-1/b"}) {
    EXPECT_EQ(CheckFileKey("u", key).code(), absl::StatusCode::kInvalidArgument) << key;
  }
}

// Another user, or a program of this one, may put links into a folder of the program's own.
TEST_F(FileStoreTest, AnOwnFolderHasNoLinks) {
  Touch("own/a/file");
  Touch("other/file");
  const std::string own = folder_ / "own";
  fs::create_symlink(folder_ / "other/file", own + "/link");
  fs::create_symlink(folder_ / "other", own + "/folder");
  fs::create_symlink(folder_ / "none-there", own + "/nowhere");
  fs::create_symlink(own, folder_ / "root");  // this user's own
  for (const std::string& root : {own, folder_ / "root"}) {
    FileStore store(OwnFolder{.path = root, .owner = geteuid()});
    EXPECT_EQ(HeadBlocking(store, "a/file")->size, 1u);
    EXPECT_EQ(HeadBlocking(store, "link").status().code(), absl::StatusCode::kPermissionDenied);
    std::string byte(1, '?');
    EXPECT_EQ(GetBlocking(store, "link", AsWritableBytes(byte), {.range = {0, 1}}).status().code(),
              absl::StatusCode::kPermissionDenied);
    for (const auto& [prefix, keys] : std::map<std::string, std::vector<std::string>>{
             {"", {"a/file"}}, {"a/", {"a/file"}}, {"folder/", {}}, {"folder/f", {}}, {"l", {}}}) {
      std::vector<std::string> listed;
      const absl::StatusOr<std::vector<ObjectInfo>> all = ListAll(store, prefix);
      ASSERT_TRUE(all.ok()) << all.status();
      for (const ObjectInfo& object : *all) listed.push_back(object.key);
      EXPECT_EQ(listed, keys) << prefix;
    }
    EXPECT_THAT(ListBlocking(store, {.delimiter = "/"})->common_prefixes, ElementsAre("a/"));
  }
  EXPECT_EQ(HeadBlocking(store_, "own/link")->size, 1u);  // any other folder
}

}  // namespace
}  // namespace millrace
