#include "compile_cache/cache_protocol.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Outcome = StartProtocol::Outcome;

absl::Status Down() {
  return absl::UnavailableError("the store is down");
}

CompileLease LeaseOf(const std::string& holder) {
  return {.holder = holder, .host = "host-of-" + holder, .renewals = 0, .term_ms = 60000};
}

CachedFile FileAt(const std::string& path, uint64_t bytes = 10, uint64_t stored_ms = 100, char content = 'x') {
  return {.path = path, .bytes = bytes, .sha256 = path + content, .crc32c = 1, .stored_ms = stored_ms};
}

/// Provides the store of one record, with its versions.
class FakeDocument {
 public:
  absl::StatusOr<CacheVersion> Read() const { return CacheVersion{record, exists ? std::to_string(version) : ""}; }
  absl::Status Replace(const CacheRecord& by, const std::string& expected) {
    if (expected != (exists ? std::to_string(version) : "")) return absl::FailedPreconditionError("lost");
    Set(by);
    return absl::OkStatus();
  }
  void Set(CacheRecord by) {
    record = std::move(by);
    exists = true;
    ++version;
  }

  CacheRecord record;
  bool exists = false;
  int version = 0;
};

/// Provides one host that starts, at times that the test chooses.
class Host {
 public:
  explicit Host(const std::string& name, Milliseconds limit = Milliseconds(600'000))
      : start({.lease = LeaseOf(name), .about = "about", .limit = limit}) {}
  /// Runs until it waits or is done. Returns how many steps that took.
  void Go(FakeDocument& document, Milliseconds now) {
    if (start.next() == StartProtocol::Step::kWait) start.OnWaited();
    while (start.next() == StartProtocol::Step::kRead || start.next() == StartProtocol::Step::kWrite) {
      if (start.next() == StartProtocol::Step::kRead) {
        start.OnRead(document.Read(), now);
      } else {
        start.OnWritten(document.Replace(start.to_write(), start.version()));
      }
    }
  }
  bool Waits() const { return start.next() == StartProtocol::Step::kWait; }
  bool Has(Outcome outcome) const { return start.next() == StartProtocol::Step::kDone && start.outcome() == outcome; }

  StartProtocol start;
};

TEST(StartProtocol, OneOfManyCompiles) {
  FakeDocument document;
  std::vector<Host> hosts;
  for (int i = 0; i < 8; ++i) hosts.emplace_back(std::to_string(i));
  for (Host& host : hosts) host.start.OnRead(document.Read(), Milliseconds(0));  // all read before one writes
  for (Host& host : hosts) host.Go(document, Milliseconds(0));
  for (size_t i = 0; i < hosts.size(); ++i) EXPECT_EQ(hosts[i].Has(Outcome::kCompile), i == 0);
  CacheRecord done = document.record;
  done.publications = 1;
  done.lease.reset();
  done.files = {FileAt("jax/a")};
  document.Set(done);
  for (size_t i = 1; i < hosts.size(); ++i) {
    ASSERT_TRUE(hosts[i].Waits());
    hosts[i].Go(document, Milliseconds(1000));
    EXPECT_TRUE(hosts[i].Has(Outcome::kWarm));
    EXPECT_EQ(hosts[i].start.record().files.size(), 1u);
  }
}

TEST(StartProtocol, ARenewedLeaseIsRespectedAndASilentOneTaken) {
  FakeDocument document;
  Host holder("h");
  holder.Go(document, Milliseconds(0));
  ASSERT_TRUE(holder.Has(Outcome::kCompile));
  Host first("1", std::chrono::hours(1));
  Host second("2", std::chrono::hours(1));
  for (int minute = 0; minute < 10; ++minute) {  // renewed just in time
    ++document.record.lease->renewals;
    document.Set(document.record);
    first.Go(document, Milliseconds(minute * 59'999));
    ASSERT_TRUE(first.Waits());
  }
  const Milliseconds last(9 * 59'999);
  second.Go(document, last + Milliseconds(30'000));  // it has seen nothing of it before
  first.Go(document, last + Milliseconds(59'999));
  EXPECT_TRUE(first.Waits());
  EXPECT_EQ(first.start.pause(), Milliseconds(1));
  first.Go(document, last + Milliseconds(60'000));
  EXPECT_TRUE(first.Has(Outcome::kCompile));
  EXPECT_EQ(document.record.lease->holder, "1");
  second.Go(document, last + Milliseconds(90'000));  // the holder is another one: it watches anew
  EXPECT_TRUE(second.Waits());
}

TEST(StartProtocol, WaitingHasALimit) {
  FakeDocument document;
  Host holder("h");
  holder.Go(document, Milliseconds(0));
  Host other("1", Milliseconds(5'000));
  other.Go(document, Milliseconds(100'000));
  EXPECT_EQ(other.start.pause(), Milliseconds(2'000));
  other.Go(document, Milliseconds(104'500));
  EXPECT_EQ(other.start.pause(), Milliseconds(500));
  other.Go(document, Milliseconds(105'000));
  EXPECT_TRUE(other.Has(Outcome::kTimedOut));
  EXPECT_EQ(document.record.lease->holder, "h");
  Host hasty("2", Milliseconds(0));
  hasty.Go(document, Milliseconds(0));
  EXPECT_TRUE(hasty.Has(Outcome::kTimedOut));
}

TEST(StartProtocol, EachStepMayFail) {
  Host reads("1");
  reads.start.OnRead(Down(), Milliseconds(0));
  EXPECT_TRUE(reads.Has(Outcome::kFailed));
  EXPECT_EQ(reads.start.status(), Down());
  // The answer to the write was lost: it was written, or not, or another host was quicker.
  for (const int what : {0, 1, 2}) {
    FakeDocument document;
    Host host("1");
    host.start.OnRead(document.Read(), Milliseconds(0));
    ASSERT_EQ(host.start.next(), StartProtocol::Step::kWrite);
    CacheRecord record = host.start.to_write();
    if (what == 2) record.lease = LeaseOf("2");
    if (what != 1) document.Set(record);
    host.start.OnWritten(Down());
    ASSERT_EQ(host.start.next(), StartProtocol::Step::kRead);
    host.Go(document, Milliseconds(0));
    if (what == 0) {
      EXPECT_TRUE(host.Has(Outcome::kCompile));
    } else if (what == 1) {
      EXPECT_TRUE(host.Has(Outcome::kFailed));
      EXPECT_EQ(host.start.status(), Down());
    } else {
      EXPECT_TRUE(host.Waits());
    }
  }
}

/// Drives a publication; `before_write` acts right before each write, as other hosts do.
struct Publication {
  explicit Publication(PublishProtocol::Job job) : publish(std::move(job)) {}

  void Go(FakeDocument& document, const std::function<void(int)>& before_write = {}) {
    int writes = 0;
    while (publish.next() != PublishProtocol::Step::kDone) {
      switch (publish.next()) {
        case PublishProtocol::Step::kRead:
          publish.OnRead(document.Read());
          break;
        case PublishProtocol::Step::kUpload:
          for (const CachedFile& file : publish.to_upload()) uploads.push_back(file.sha256);
          publish.OnUploaded(failing);
          break;
        case PublishProtocol::Step::kWrite:
          if (before_write) before_write(writes);
          ++writes;
          publish.OnWritten(document.Replace(publish.to_write(), publish.version()));
          break;
        case PublishProtocol::Step::kRemove:
          removed = publish.to_remove();
          publish.OnRemoved();
          break;
        case PublishProtocol::Step::kDone:
          break;
      }
    }
  }

  PublishProtocol publish;
  std::set<std::string> failing;
  std::vector<std::string> uploads;
  std::set<std::string> removed;
};

std::vector<std::string> PathsOf(const CacheRecord& record) {
  std::vector<std::string> paths;
  for (const CachedFile& file : record.files) paths.push_back(file.path);
  return paths;
}

using Paths = std::vector<std::string>;

TEST(PublishProtocol, StoresFilesAndGivesTheLeaseBack) {
  FakeDocument document;
  Host holder("h");
  holder.Go(document, Milliseconds(0));
  Publication first({.holder = "h", .about = "about", .files = {FileAt("jax/b"), FileAt("jax/a")}});
  first.Go(document);
  EXPECT_TRUE(first.publish.status().ok());
  EXPECT_EQ(PathsOf(document.record), (Paths{"jax/a", "jax/b"}));
  EXPECT_FALSE(document.record.lease.has_value());
  EXPECT_EQ(document.record.publications, 1u);
  EXPECT_EQ(first.publish.added(), 2u);
  // The first host that stores a path wins; what is there is not uploaded again; nothing new writes nothing.
  Publication second({.holder = "other", .files = {FileAt("jax/a", 10, 200, 'y'), FileAt("jax/c")}});
  second.Go(document);
  EXPECT_EQ(second.uploads, Paths{"jax/cx"});
  EXPECT_EQ(document.record.Find("jax/a")->sha256, "jax/ax");
  const int version = document.version;
  Publication third({.holder = "other", .files = {FileAt("jax/a", 10, 200, 'y')}});
  third.Go(document);
  EXPECT_EQ(document.version, version);
  EXPECT_EQ(third.publish.added(), 0u);
}

TEST(PublishProtocol, TellsThatThereWasNothingToCompile) {
  FakeDocument document;
  Publication nothing({.holder = "h"});
  nothing.Go(document);
  EXPECT_EQ(document.record.publications, 1u);
  Host next("1");
  next.Go(document, Milliseconds(0));
  EXPECT_TRUE(next.Has(Outcome::kWarm));
}

TEST(PublishProtocol, AHostThatFailsHandsTheLeaseOn) {
  FakeDocument document;
  Host holder("h");
  holder.Go(document, Milliseconds(0));
  Host waits("1");
  waits.Go(document, Milliseconds(0));
  Publication back({.holder = "h", .files = {FileAt("jax/a")}, .publishes = false});
  back.Go(document);
  EXPECT_TRUE(document.record.files.empty());
  waits.Go(document, Milliseconds(10));
  EXPECT_TRUE(waits.Has(Outcome::kCompile));
  // The lease of another host stays.
  Publication late({.holder = "h", .publishes = false});
  late.Go(document);
  EXPECT_EQ(document.record.lease->holder, "1");
}

TEST(PublishProtocol, HostsThatPublishAtOnceLoseNothing) {
  FakeDocument document;
  Publication mine({.holder = "a", .files = {FileAt("jax/a"), FileAt("jax/both", 10, 100, 'a')}});
  mine.Go(document, [&](int writes) {
    if (writes >= 3) return;
    Publication other({.holder = "b", .files = {FileAt("jax/" + std::to_string(writes)), FileAt("jax/both")}});
    other.Go(document);
  });
  EXPECT_TRUE(mine.publish.status().ok());
  EXPECT_EQ(PathsOf(document.record), (Paths{"jax/0", "jax/1", "jax/2", "jax/a", "jax/both"}));
  EXPECT_EQ(document.record.Find("jax/both")->sha256, "jax/bothx");
  EXPECT_EQ(mine.uploads.size(), 2u);  // once, however often it was too late
  // It does not try forever.
  Publication never({.holder = "a", .files = {FileAt("jax/z")}});
  never.Go(document, [&](int) { document.Set(document.record); });
  EXPECT_TRUE(absl::IsFailedPrecondition(never.publish.status()));
}

TEST(PublishProtocol, TheOldestGroupsGo) {
  FakeDocument document;
  Publication old(
      {.holder = "a", .files = {FileAt("jax/old", 40, 1), FileAt("triton/K/a", 20, 2), FileAt("triton/K/b", 20, 3)}});
  old.Go(document);
  Publication young({.holder = "a", .files = {FileAt("jax/young", 30, 9)}, .max_bytes = 70});
  young.Go(document);
  EXPECT_EQ(PathsOf(document.record), (Paths{"jax/young", "triton/K/a", "triton/K/b"}));
  EXPECT_EQ(young.removed, std::set<std::string>{"jax/oldx"});
  Publication more({.holder = "a", .files = {FileAt("jax/newest", 30, 10)}, .max_bytes = 70});
  more.Go(document);  // a group goes as a whole
  EXPECT_EQ(PathsOf(document.record), (Paths{"jax/newest", "jax/young"}));
  EXPECT_EQ(more.removed, (std::set<std::string>{"triton/K/ax", "triton/K/bx"}));
  Publication vast({.holder = "a", .files = {FileAt("jax/vast", 71, 11)}, .max_bytes = 70});
  vast.Go(document);
  EXPECT_LE(document.record.Bytes(), 70u);
  EXPECT_TRUE(vast.uploads.empty());
}

TEST(PublishProtocol, RefusedFilesGoWithTheirGroupAndCanComeAgain) {
  FakeDocument document;
  Publication all({.holder = "a", .files = {FileAt("jax/a"), FileAt("triton/K/a"), FileAt("triton/K/b")}});
  all.Go(document);
  Publication refusal({.holder = "b", .refused = {FileAt("triton/K/a")}, .publishes = false});
  refusal.Go(document);
  EXPECT_EQ(PathsOf(document.record), Paths{"jax/a"});
  EXPECT_EQ(refusal.removed, (std::set<std::string>{"triton/K/ax", "triton/K/bx"}));
  EXPECT_EQ(document.record.publications, 1u);
  Publication again({.holder = "b", .files = {FileAt("triton/K/a"), FileAt("triton/K/b")}});
  again.Go(document);
  EXPECT_EQ(again.uploads.size(), 2u);
  EXPECT_EQ(document.record.files.size(), 3u);
  // Another host has replaced the damaged one meanwhile: that stays.
  document.record.files[0].sha256 = "sound";
  Publication late({.holder = "c", .refused = {FileAt("jax/a")}, .publishes = false});
  late.Go(document);
  EXPECT_NE(document.record.Find("jax/a"), nullptr);
}

TEST(PublishProtocol, EachStepMayFail) {
  const PublishProtocol::Job job{.holder = "h", .files = {FileAt("jax/a"), FileAt("triton/K/a"), FileAt("triton/K/b")}};
  PublishProtocol reads(job);
  reads.OnRead(Down());
  EXPECT_EQ(reads.status(), Down());
  // An object that was not uploaded keeps its group out, and no other.
  FakeDocument document;
  Publication uploads(job);
  uploads.failing = {"triton/K/bx"};
  uploads.Go(document);
  EXPECT_TRUE(uploads.publish.status().ok());
  EXPECT_EQ(PathsOf(document.record), Paths{"jax/a"});
  EXPECT_EQ(uploads.publish.added(), 1u);
  // It is not known whether the record was written: no object is removed, since it may be needed.
  PublishProtocol writes({.holder = "h", .refused = {FileAt("jax/a")}});
  writes.OnRead(document.Read());
  ASSERT_EQ(writes.next(), PublishProtocol::Step::kWrite);
  writes.OnWritten(Down());
  ASSERT_EQ(writes.next(), PublishProtocol::Step::kDone);
  EXPECT_EQ(writes.status(), Down());
  EXPECT_TRUE(writes.to_remove().empty());
}

}  // namespace
}  // namespace millrace
