#include "checkpoint/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "store/blocking.h"
#include "store/file_store.h"
#include "store/testing/devstore_bucket.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Spoils one call, or all from one on, and lets a test act right before a call. It counts all calls.
class SpoiledStore final : public ForwardingStore {
 public:
  enum class How { kNot, kInstead, kAfter, kFromThereOn };  // an error instead of the call, or after it was done
  using ForwardingStore::ForwardingStore;
  explicit SpoiledStore(std::unique_ptr<ObjectStore> below) : ForwardingStore(std::move(below)) {}

  void Spoil(int call, How how) {
    calls_ = 0;
    spoiled_ = call;
    how_ = how;
  }
  void Before(int call, std::function<void()> act) {
    calls_ = 0;
    acts_at_ = call;
    act_ = std::move(act);
  }
  void BeforePut(int put, std::function<void()> act) {
    puts_ = 0;
    acts_at_put_ = put;
    act_ = std::move(act);
  }
  int calls() const { return calls_; }
  void IgnoreConditions(bool ignore = true) { ignore_conditions_ = ignore; }
  void RefuseConditions() { refuse_conditions_ = true; }
  /// The next object whose key begins so is written by PutDelayed. Its request fails before.
  void DelayPut(const std::string& prefix) { delayed_prefix_ = prefix; }
  bool PutDelayed() {
    return !delayed_.first.empty() && PutBlocking(*this, delayed_.first, AsBytes(delayed_.second)).ok();
  }

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    const How how = Next();
    if (how == How::kInstead) return std::move(done)(Down());
    ForwardingStore::Get(std::move(key), into, std::move(options), Spoiled(std::move(done), how));
  }
  void Head(std::string key, HeadOptions options, HeadCallback done) override {
    const How how = Next();
    if (how == How::kInstead) return std::move(done)(Down());
    ForwardingStore::Head(std::move(key), options, Spoiled(std::move(done), how));
  }
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    if (++puts_ == acts_at_put_) {
      acts_at_put_ = 0;
      std::exchange(act_, {})();
    }
    const How how = Next();
    if (how == How::kInstead) return std::move(done)(Down());
    if (!delayed_prefix_.empty() && key.starts_with(delayed_prefix_)) {
      delayed_ = {std::move(key), std::string(AsText(body))};
      delayed_prefix_.clear();
      return std::move(done)(Down());
    }
    if (refuse_conditions_ && (options.only_if_absent || !options.if_match.empty())) {
      return std::move(done)(absl::InvalidArgumentError("HTTP 501"));
    }
    if (ignore_conditions_) {
      options.only_if_absent = false;
      options.if_match.clear();
    }
    ForwardingStore::Put(std::move(key), body, std::move(options), Spoiled(std::move(done), how));
  }
  void Delete(std::vector<std::string> keys, DeleteCallback done) override {
    const How how = Next();
    const std::vector<absl::Status> down(keys.size(), Down());
    if (how == How::kInstead) return std::move(done)(down);
    ForwardingStore::Delete(std::move(keys), [done = std::move(done), how, down](auto statuses) mutable {
      std::move(done)(how == How::kAfter ? down : std::move(statuses));
    });
  }
  void List(ListOptions options, ListCallback done) override {
    const How how = Next();
    if (how == How::kInstead) return std::move(done)(Down());
    ForwardingStore::List(std::move(options), Spoiled(std::move(done), how));
  }

 private:
  static absl::Status Down() { return absl::UnavailableError("the store is down"); }

  How Next() {
    ++calls_;
    if (calls_ == acts_at_) {
      acts_at_ = 0;
      std::exchange(act_, {})();
    }
    if (how_ == How::kFromThereOn) return calls_ >= spoiled_ ? How::kInstead : How::kNot;
    return calls_ == spoiled_ ? how_ : How::kNot;
  }

  template <typename T>
  static absl::AnyInvocable<void(absl::StatusOr<T>)> Spoiled(absl::AnyInvocable<void(absl::StatusOr<T>)> done,
                                                             How how) {
    return [done = std::move(done), how](absl::StatusOr<T> result) mutable {
      if (how == How::kAfter) return std::move(done)(Down());
      std::move(done)(std::move(result));
    };
  }

  int calls_ = 0;
  int spoiled_ = 0;
  How how_ = How::kNot;
  int acts_at_ = 0;
  int puts_ = 0;
  int acts_at_put_ = 0;
  std::function<void()> act_;
  bool ignore_conditions_ = false;
  bool refuse_conditions_ = false;
  std::string delayed_prefix_;
  std::pair<std::string, std::string> delayed_;  // key and text
};

/// Provides a place for checkpoints, of one of several kinds, behind a SpoiledStore.
class CheckpointsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam();
    if (kind == "memory") {
      store_ = std::make_unique<SpoiledStore>(std::make_unique<MemoryStore>("m"));
    } else if (kind == "folder") {
      store_ = std::make_unique<SpoiledStore>(std::make_unique<FileStore>(folder_.path()));
    } else {
      bucket_ = std::make_unique<DevstoreBucket>(DevstoreOptions{.root = "mem:"});
      client_ = bucket_->NewClient();
      store_ = std::make_unique<SpoiledStore>(
          std::make_unique<S3Store>(client_->runtime, client_->s3, DevstoreBucket::kName));
    }
  }
  void TearDown() override { store_.reset(); }

  SpoiledStore& store() { return *store_; }
  Checkpoints Open() { return Checkpoints({store_.get(), "run"}, memory_); }

  // The bytes of a checkpoint follow from the step.
  static std::string TextOf(uint64_t step) { return "the model of step " + std::to_string(step); }
  static absl::Status Save(Checkpoints& checkpoints, uint64_t step, uint64_t keep = 0) {
    const std::string text = TextOf(step);
    return checkpoints
        .Save(step, {{"model", {AsBytes(text)}}, {"state", {AsBytes("{"), AsBytes("}")}}},
              {.retention = {.keep = keep}, .stop = {}})
        .status();
  }

  // Returns the steps that are committed, all of them whole, with what was saved.
  std::vector<uint64_t> Steps() {
    Checkpoints reader = Open();
    const auto catalog = reader.ReadCatalog();
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    std::vector<uint64_t> steps;
    if (!catalog.ok() || !*catalog) return steps;
    for (const CheckpointEntry& entry : (*catalog)->entries) {
      steps.push_back(entry.step);
      const auto manifest = reader.ReadManifest(entry);
      EXPECT_TRUE(manifest.ok()) << manifest.status();
      if (!manifest.ok()) continue;
      std::string model(manifest->shards[0].bytes, '\0');
      std::string state(manifest->shards[1].bytes, '\0');
      const absl::Status read = reader.Read(*manifest, {AsWritableBytes(model), AsWritableBytes(state)}, {});
      EXPECT_TRUE(read.ok()) << read;
      EXPECT_EQ(model, TextOf(entry.step));
      EXPECT_TRUE(reader.Verify(entry, {}).ok());
    }
    return steps;
  }

  // Returns all objects but LATEST.
  size_t Objects() {
    size_t objects = 0;
    const auto all = ListAll(store(), "");
    EXPECT_TRUE(all.ok()) << all.status();
    for (const ObjectInfo& object : *all) objects += object.key.find("/LATEST") == std::string::npos ? 1 : 0;
    return objects;
  }

  const TempFolder folder_;
  std::unique_ptr<DevstoreBucket> bucket_;
  std::unique_ptr<DevstoreBucket::Client> client_;
  std::unique_ptr<SpoiledStore> store_;
  MemoryBudget memory_{64 << 20};
};

INSTANTIATE_TEST_SUITE_P(Stores, CheckpointsTest, ::testing::Values("memory", "folder", "devstore"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(CheckpointsTest, NothingIsThereAtFirst) {
  Checkpoints checkpoints = Open();
  const auto catalog = checkpoints.ReadCatalog();
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_FALSE(catalog->has_value());
  EXPECT_TRUE(absl::IsNotFound(checkpoints.Find(std::nullopt).status()));
}

TEST_P(CheckpointsTest, SavesAndKeeps) {
  Checkpoints checkpoints = Open();
  for (const uint64_t step : {10, 20, 30, 20}) ASSERT_TRUE(Save(checkpoints, step).ok());
  EXPECT_EQ(checkpoints.epoch(), 1u);
  EXPECT_THAT(Steps(), ElementsAre(10, 30, 20));
  EXPECT_EQ(checkpoints.Find(std::nullopt)->step, 20u);
  EXPECT_EQ(checkpoints.Find(10)->step, 10u);
  EXPECT_THAT(std::string(checkpoints.Find(11).status().message()),
              HasSubstr("step 11; the newest are those of 10, 30, 20"));
  ASSERT_TRUE(Save(checkpoints, 40, /*keep=*/2).ok());
  EXPECT_THAT(Steps(), ElementsAre(20, 40));
  EXPECT_EQ(Objects(), 6u);
  if (GetParam() == std::string("folder")) {  // nor do empty folders stay
    size_t folders = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() + "/run"))
      folders += entry.is_directory();
    EXPECT_EQ(folders, 2u);
  }
}

// A job of many ranks has many shards: superseded ones are removed by few requests, for which the save waits.
TEST_P(CheckpointsTest, ManyShardsAreRemovedTogether) {
  constexpr size_t kShards = 40;
  Checkpoints checkpoints = Open();
  const std::string text = TextOf(1);
  std::vector<ShardBytes> shards;
  for (size_t i = 0; i < kShards; ++i) shards.push_back({"shard-" + std::to_string(i), {AsBytes(text)}});
  for (const uint64_t step : {1, 2}) {
    store().Spoil(0, SpoiledStore::How::kNot);  // begins to count
    const auto saved = checkpoints.Save(step, shards, {.retention = {.keep = 1}, .stop = {}});
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  EXPECT_LE(store().calls(), static_cast<int>(kShards) + 15);
  EXPECT_EQ(Objects(), kShards + 1);
}

TEST_P(CheckpointsTest, BadRequestsAreRefused) {
  Checkpoints checkpoints = Open();
  EXPECT_TRUE(absl::IsInvalidArgument(checkpoints.Save(kMaxCheckpointStep + 1, {}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(checkpoints.Save(1, {{"a", {}}, {"a", {}}}, {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(checkpoints.Save(1, {{"../a", {}}}, {}).status()));
  EXPECT_EQ(Objects(), 0u);
}

TEST_P(CheckpointsTest, AnOlderWriterIsFencedOff) {
  Checkpoints zombie = Open();
  ASSERT_TRUE(Save(zombie, 1).ok());
  Checkpoints next = Open();
  ASSERT_TRUE(next.Claim({}).ok());
  EXPECT_EQ(next.epoch(), 2u);
  const absl::Status refused = Save(zombie, 2);
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("epoch 2; this process has 1"));
  EXPECT_THAT(Steps(), ElementsAre(1));
  ASSERT_TRUE(Save(next, 3).ok());
  EXPECT_THAT(Steps(), ElementsAre(1, 3));
}

// The other process claims, and maybe saves, right before each call that a save makes.
TEST_P(CheckpointsTest, AClaimAtAnyMomentFences) {
  int refused = 0;
  int committed = 0;
  for (int call = 1; call < 40; ++call) {
    for (const bool saves : {false, true}) {
      TearDown();
      std::filesystem::remove_all(folder_.path() + "/run");
      SetUp();
      Checkpoints zombie = Open();
      ASSERT_TRUE(Save(zombie, 1).ok());
      Checkpoints next = Open();
      std::vector<uint64_t> found;
      store().Before(call, [&] {
        ASSERT_TRUE(next.Claim({}).ok());
        if (saves) {
          ASSERT_TRUE(Save(next, 3, /*keep=*/1).ok());
        }
        found = Steps();
      });
      const absl::Status status = Save(zombie, 2, /*keep=*/2);
      const bool claimed = next.epoch() == 2;
      if (!claimed) break;  // it makes no more calls
      if (status.ok()) {
        // Then the other one has seen it.
        ++committed;
        if (!saves) {
          EXPECT_THAT(found, ElementsAre(1, 2));
        }
      } else {
        ++refused;
        EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
        if (!saves) {
          EXPECT_THAT(found, ElementsAre(1));
        }
      }
      EXPECT_EQ(Steps(), found) << "call " << call;
      ASSERT_TRUE(Save(next, 4, /*keep=*/1).ok());
      EXPECT_THAT(Steps(), ElementsAre(4));
    }
  }
  EXPECT_GT(refused, 4);
}

// Every call of a save fails in turn: before it was done, after it, and with all that follow.
TEST_P(CheckpointsTest, AnyCallMayFail) {
  using How = SpoiledStore::How;
  for (const How how : {How::kInstead, How::kAfter, How::kFromThereOn}) {
    int calls = 1;
    for (int call = 1; call <= calls; ++call) {
      TearDown();
      std::filesystem::remove_all(folder_.path() + "/run");
      SetUp();
      Checkpoints before = Open();
      ASSERT_TRUE(Save(before, 1).ok());
      ASSERT_TRUE(Save(before, 2).ok());
      Checkpoints writer = Open();
      store().Spoil(call, how);
      const absl::Status status = Save(writer, 3, /*keep=*/2);
      if (call == 1) calls = 40;
      const bool reached = store().calls() >= call;
      store().Spoil(0, How::kNot);
      const std::vector<uint64_t> steps = Steps();  // checks that all of them are whole
      const bool unsure = status.message().find("not known") != std::string::npos;
      if (status.ok()) {
        EXPECT_THAT(steps, ElementsAre(2, 3)) << "call " << call;
      } else if (!unsure) {
        EXPECT_THAT(steps, ElementsAre(1, 2)) << "call " << call << ": " << status;
      }
      // The next process finds all in order, and leaves nothing behind but what is committed.
      Checkpoints next = Open();
      ASSERT_TRUE(Save(next, 4, /*keep=*/1).ok());
      EXPECT_THAT(Steps(), ElementsAre(4));
      Checkpoints last = Open();
      ASSERT_TRUE(last.Claim({}).ok());
      EXPECT_EQ(Objects(), 3u) << "call " << call;
      if (!reached) break;
    }
    EXPECT_GT(calls, 1);
  }
}

TEST_P(CheckpointsTest, SweepLeavesOthersAlone) {
  ASSERT_TRUE(PutBlocking(store(), "run/notes.txt", AsBytes("mine")).ok());
  ASSERT_TRUE(PutBlocking(store(), "run/000000000001/notes.txt", AsBytes("mine")).ok());
  ASSERT_TRUE(PutBlocking(store(), "run/000000000001/e1-0000000000000000/model", AsBytes("left")).ok());
  ASSERT_TRUE(PutBlocking(store(), "run/000000000001/e9-0000000000000000/model", AsBytes("of a later one")).ok());
  Checkpoints first = Open();
  ASSERT_TRUE(first.Claim({}).ok());
  EXPECT_EQ(Objects(), 4u);  // its own epoch is 1
  Checkpoints second = Open();
  ASSERT_TRUE(second.Claim({}).ok());
  EXPECT_EQ(Objects(), 3u);
}

// Several processes write one checkpoint; only one of them commits.
TEST_P(CheckpointsTest, SeveralProcessesSaveOne) {
  Checkpoints leader = Open();
  const Checkpoints other = Open();
  const std::string state = "{}";
  const std::string text = TextOf(7);
  for (const bool fails : {true, false}) {
    absl::StatusOr<SaveProtocol> save = leader.Begin(7, {});
    ASSERT_TRUE(save.ok()) << save.status();
    const std::string attempt = save->entry().attempt;
    auto all = other.Upload(7, attempt, {{"model", {AsBytes(text)}}}, {});
    ASSERT_TRUE(all.ok()) << all.status();
    const auto passed = ShardsFromJson(ShardsToJson(*all));
    ASSERT_TRUE(passed.ok()) << passed.status();
    all = *passed;
    const auto mine = leader.Upload(7, attempt, {{"state", {AsBytes(state)}}}, {});
    ASSERT_TRUE(mine.ok()) << mine.status();
    all->push_back((*mine)[0]);
    EXPECT_THAT(Steps(), IsEmpty());
    if (fails) {
      const auto ended = leader.Finish(*std::move(save), absl::AbortedError("rank 3 died"), {});
      EXPECT_TRUE(absl::IsAborted(ended.status())) << ended.status();
      EXPECT_THAT(Steps(), IsEmpty());
      EXPECT_EQ(Objects(), 0u);
    } else {
      const auto ended = leader.Finish(*std::move(save), *std::move(all), {});
      ASSERT_TRUE(ended.ok()) << ended.status();
      EXPECT_THAT(Steps(), ElementsAre(7));
    }
  }
  // Two shards of one name are two ranks that believe to be the same.
  absl::StatusOr<SaveProtocol> save = leader.Begin(8, {});
  const auto twice = other.Upload(8, save->entry().attempt, {{"model", {AsBytes(text)}}}, {});
  std::vector<CheckpointShard> all = {(*twice)[0], (*twice)[0]};
  EXPECT_TRUE(absl::IsInvalidArgument(leader.Finish(*std::move(save), std::move(all), {}).status()));
  EXPECT_THAT(Steps(), ElementsAre(7));
}

TEST_P(CheckpointsTest, ACopyIsACheckpoint) {
  Checkpoints checkpoints = Open();
  ASSERT_TRUE(Save(checkpoints, 1).ok());
  ASSERT_TRUE(Save(checkpoints, 2).ok());
  MemoryStore elsewhere("elsewhere");
  Checkpoints copies({&elsewhere, "copies"}, memory_);
  for (const uint64_t step : {1, 2}) {
    const auto copied = copies.Copy(checkpoints, *checkpoints.Find(step), {.retention = {.keep = 1}, .stop = {}});
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_TRUE(copies.Verify(*copies.Find(step), {}).ok());
    EXPECT_EQ(copies.ReadCatalog().value()->entries.size(), 1u);
  }
  // A damaged one is not copied.
  const CheckpointEntry newest = *checkpoints.Find(std::nullopt);
  ASSERT_TRUE(PutBlocking(store(), "run/" + AttemptFolder(2, newest.attempt) + "model", AsBytes(TextOf(3))).ok());
  EXPECT_TRUE(absl::IsDataLoss(copies.Copy(checkpoints, newest, {}).status()));
  EXPECT_EQ(copies.Find(std::nullopt)->step, 2u);
  EXPECT_TRUE(copies.Verify(*copies.Find(std::nullopt), {}).ok());
}

TEST_P(CheckpointsTest, RetainingDisturbsNoTraining) {
  Checkpoints training = Open();
  for (const uint64_t step : {10, 15, 20, 25}) ASSERT_TRUE(Save(training, step).ok());
  Checkpoints gc = Open();
  const auto removed = gc.Retain({.keep = 1, .keep_every = 20}, {});
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(removed->size(), 2u);
  EXPECT_THAT(Steps(), ElementsAre(20, 25));
  EXPECT_EQ(Objects(), 6u);
  ASSERT_TRUE(Save(training, 30).ok());
  EXPECT_THAT(Steps(), ElementsAre(20, 25, 30));
  // The kill comes in the midst of a save, at any of its calls.
  for (int call = 1; call < 12; ++call) {
    store().Before(call, [&] { ASSERT_TRUE(gc.Retain({.keep = 1}, {}).ok()); });
    ASSERT_TRUE(Save(training, 40 + call).ok()) << call;
    store().Before(0, {});  // if the save had fewer calls
    EXPECT_THAT(Steps(), ::testing::Contains(40u + call));
  }
  EXPECT_EQ(Objects(), 3 * Steps().size());
}

// A running training that keeps one checkpoint commits the next one right before each call that a reader makes.
TEST_P(CheckpointsTest, WhatIsRemovedMeanwhileIsNotDamaged) {
  Checkpoints training = Open();
  const Checkpoints reader = Open();
  uint64_t step = 1;
  ASSERT_TRUE(Save(training, step, /*keep=*/1).ok());
  const auto commits_before = [&](int call) {
    store().Before(call, [&] { ASSERT_TRUE(Save(training, ++step, /*keep=*/1).ok()); });
  };
  uint64_t removed = 0;
  for (int call = 1; call < 20; ++call) {
    const CheckpointEntry entry = *reader.Find(std::nullopt);
    EXPECT_TRUE(*reader.IsCommitted(entry));
    commits_before(call);
    const auto manifest = reader.FindManifest(std::nullopt);
    ASSERT_TRUE(manifest.ok()) << call << ": " << manifest.status();
    EXPECT_GE(manifest->step, entry.step);
    commits_before(call);
    const auto verified = reader.FindAndVerify(std::nullopt, {});
    ASSERT_TRUE(verified.ok()) << call << ": " << verified.status();
    EXPECT_TRUE(verified->status.ok()) << call << ": " << verified->status;
    store().Before(0, {});  // if the reader has made fewer calls
    removed += step > entry.step ? 1 : 0;
    EXPECT_EQ(*reader.IsCommitted(entry), step == entry.step);
  }
  EXPECT_GT(removed, 4u);
  // A checkpoint that is named and not there is damaged, and one that is not named is not found.
  const CheckpointEntry newest = *reader.Find(std::nullopt);
  ASSERT_TRUE(DeleteBlocking(store(), "run/" + AttemptFolder(newest.step, newest.attempt) + "state").ok());
  EXPECT_TRUE(absl::IsNotFound(reader.FindAndVerify(std::nullopt, {})->status));
  EXPECT_TRUE(absl::IsNotFound(reader.FindAndVerify(newest.step + 1, {}).status()));
  EXPECT_TRUE(absl::IsNotFound(reader.FindManifest(newest.step + 1).status()));
}

TEST_P(CheckpointsTest, DamageIsFound) {
  Checkpoints checkpoints = Open();
  ASSERT_TRUE(Save(checkpoints, 1).ok());
  const CheckpointEntry entry = *checkpoints.Find(std::nullopt);
  const std::string folder = "run/" + AttemptFolder(1, entry.attempt);
  ASSERT_TRUE(PutBlocking(store(), folder + "model", AsBytes("THE model of step 1")).ok());
  EXPECT_TRUE(absl::IsDataLoss(checkpoints.Verify(entry, {})));
  ASSERT_TRUE(PutBlocking(store(), folder + "MANIFEST.json", AsBytes("{}")).ok());
  EXPECT_TRUE(absl::IsDataLoss(checkpoints.ReadManifest(entry).status()));
  ASSERT_TRUE(DeleteBlocking(store(), folder + "MANIFEST.json").ok());
  EXPECT_TRUE(absl::IsNotFound(checkpoints.Verify(entry, {})));
}

TEST(CheckpointsWeak, AStoreThatIgnoresConditionsIsFoundOut) {
  SpoiledStore store(std::make_unique<MemoryStore>("m"));
  store.IgnoreConditions();
  MemoryBudget memory(64 << 20);
  Checkpoints zombie({&store, "run"}, memory);
  ASSERT_TRUE(zombie.Save(1, {{"model", {AsBytes("1")}}}, {}).ok());
  EXPECT_FALSE((*zombie.ReadCatalog())->conditional_writes);
  // A process that was dead for long is refused here, too: only two within one moment are not told apart.
  Checkpoints next({&store, "run"}, memory);
  ASSERT_TRUE(next.Claim({}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(zombie.Save(2, {{"model", {AsBytes("2")}}}, {}).status()));
  ASSERT_TRUE(next.Save(3, {{"model", {AsBytes("3")}}}, {}).ok());
  EXPECT_EQ(next.Find(std::nullopt)->step, 3u);
  EXPECT_FALSE((*next.ReadCatalog())->conditional_writes);
}

TEST(CheckpointsWeak, AStoreThatRefusesConditionsIsOneThatIgnoresThem) {
  SpoiledStore store(std::make_unique<MemoryStore>("m"));
  store.RefuseConditions();
  MemoryBudget memory(64 << 20);
  for (uint64_t step = 1; step <= 3; ++step) {
    Checkpoints checkpoints({&store, "run"}, memory);
    const auto saved = checkpoints.Save(step, {{"model", {AsBytes("1")}}}, {});
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_FALSE((*checkpoints.ReadCatalog())->conditional_writes);
    EXPECT_EQ(checkpoints.Find(std::nullopt)->step, step);
  }
}

// A claim asks the store for its conditions by three writes, and then writes its catalog twice. A commit of another
// process before one of these stays.
TEST(CheckpointsWeak, AClaimRevertsNoCommit) {
  for (int put = 1; put <= 5; ++put) {
    SpoiledStore store(std::make_unique<MemoryStore>("m"));
    store.IgnoreConditions();
    MemoryBudget memory(64 << 20);
    Checkpoints slow({&store, "run"}, memory);
    Checkpoints other({&store, "run"}, memory);
    bool committed = false;
    store.BeforePut(put, [&] { committed = other.Save(7, {{"model", {AsBytes("7")}}}, {}).ok(); });
    const absl::Status claimed = slow.Claim({});
    EXPECT_TRUE(claimed.ok()) << put << ": " << claimed;
    ASSERT_TRUE(committed) << put;
    EXPECT_GT(slow.epoch(), other.epoch()) << put;
    const auto found = other.Find(std::nullopt);
    ASSERT_TRUE(found.ok()) << found.status() << ", committed before write " << put << " of the claim";
    EXPECT_EQ(found->step, 7u);
  }
}

// A request that was sent again, since its answer was lost, may arrive once more, late. Each object that the commits
// have ever written for catalogs is written again so, one at a time.
TEST(CheckpointsWeak, ALateWriteOfLatestLosesNoCommit) {
  for (const bool refuses : {false, true}) {
    SpoiledStore store(std::make_unique<MemoryStore>("m"));
    refuses ? store.RefuseConditions() : store.IgnoreConditions();
    MemoryBudget memory(64 << 20);
    std::vector<std::pair<std::string, std::string>> written;  // keys and texts, as of each commit
    const auto note = [&] {
      const auto objects = ListAll(store, "run/LATEST");
      ASSERT_TRUE(objects.ok()) << objects.status();
      for (const ObjectInfo& object : *objects) {
        if (!object.key.ends_with(".conditions"))
          written.emplace_back(object.key, *ReadAll(store, object.key, 1 << 20));
      }
    };
    const Checkpoints::SaveOptions only_newest{.retention = {.keep = 1}, .stop = {}};
    for (uint64_t step = 1; step <= 5; ++step) {
      Checkpoints checkpoints({&store, "run"}, memory);
      ASSERT_TRUE(checkpoints.Claim({}).ok());
      note();
      ASSERT_TRUE(checkpoints.Save(step, {{"model", {AsBytes("text")}}}, only_newest).ok());
      note();
    }
    ASSERT_GT(written.size(), 20u);
    uint64_t step = 5;
    for (const auto& [key, text] : written) {
      ASSERT_TRUE(PutBlocking(store, key, AsBytes(text)).ok());
      Checkpoints checkpoints({&store, "run"}, memory);
      const auto found = checkpoints.Find(std::nullopt);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(found->step, step) << "after a late write of " << key;
      EXPECT_TRUE(checkpoints.Verify(*found, {}).ok()) << "after a late write of " << key;
      ASSERT_TRUE(checkpoints.Save(++step, {{"model", {AsBytes("text")}}}, only_newest).ok());
      EXPECT_EQ(checkpoints.Find(std::nullopt)->step, step);
    }
    EXPECT_LE(ListAll(store, "run/LATEST.copies/")->size(), 10u) << "older ones are removed";
  }
}

// A save failed, since its copy of LATEST was still under way, and the next one succeeded: then the copy arrives.
TEST(CheckpointsWeak, ACopyOfAFailedSaveDoesNotCount) {
  for (int i = 0; i < 20; ++i) {  // by its random name it would count in half of the cases
    SpoiledStore store(std::make_unique<MemoryStore>("m"));
    store.IgnoreConditions();
    MemoryBudget memory(64 << 20);
    Checkpoints checkpoints({&store, "run"}, memory);
    ASSERT_TRUE(checkpoints.Save(1, {{"model", {AsBytes("1")}}}, {}).ok());
    store.DelayPut("run/LATEST.copies/");
    EXPECT_FALSE(checkpoints.Save(2, {{"model", {AsBytes("2")}}}, {}).ok());
    ASSERT_TRUE(checkpoints.Save(3, {{"model", {AsBytes("3")}}}, {}).ok());
    ASSERT_TRUE(store.PutDelayed());
    EXPECT_EQ(checkpoints.Find(std::nullopt)->step, 3u);
  }
}

// This holds for whatever the writer of an earlier epoch was about to write when it fell asleep. If it had written its
// copy of LATEST, it had committed, and the claim has seen that.
TEST(CheckpointsWeak, AZombieCommitsNothingAfterAClaim) {
  int refused = 0;
  for (int put = 1; put <= 6; ++put) {
    SpoiledStore store(std::make_unique<MemoryStore>("m"));
    store.IgnoreConditions();
    MemoryBudget memory(64 << 20);
    Checkpoints zombie({&store, "run"}, memory);
    Checkpoints next({&store, "run"}, memory);
    ASSERT_TRUE(zombie.Save(1, {{"model", {AsBytes("1")}}}, {}).ok());
    bool claimed = false;
    store.BeforePut(put, [&] { claimed = next.Claim({}).ok(); });
    const absl::Status saved = zombie.Save(2, {{"model", {AsBytes("2")}}}, {}).status();
    if (!claimed) break;
    EXPECT_TRUE(saved.ok() || absl::IsFailedPrecondition(saved)) << saved << ", asleep before write " << put;
    if (!saved.ok()) ++refused;
    ASSERT_TRUE(next.Save(3, {{"model", {AsBytes("3")}}}, {}).ok()) << put;
    const auto catalog = next.ReadCatalog();
    ASSERT_EQ((*catalog)->entries.size(), saved.ok() ? 3u : 2u) << put;
    EXPECT_EQ((*catalog)->Newest()->step, 3u);
  }
  EXPECT_EQ(refused, 3) << "before the file, the manifest, and the copy of LATEST";
}

// Before 0.1 there were no copies: a catalog that such a version has committed since decides.
TEST(CheckpointsWeak, ALaterEpochInLatestDecides) {
  SpoiledStore store(std::make_unique<MemoryStore>("m"));
  store.IgnoreConditions();
  MemoryBudget memory(64 << 20);
  Checkpoints checkpoints({&store, "run"}, memory);
  ASSERT_TRUE(checkpoints.Save(1, {{"model", {AsBytes("text")}}}, {}).ok());
  CheckpointCatalog catalog = **checkpoints.ReadCatalog();
  catalog.writer = {catalog.writer.epoch + 1, "another version"};
  ASSERT_TRUE(PutBlocking(store, "run/LATEST", AsBytes(catalog.ToJson())).ok());
  EXPECT_EQ((*checkpoints.ReadCatalog())->writer.id, "another version");
  EXPECT_TRUE(absl::IsFailedPrecondition(checkpoints.Save(2, {{"model", {AsBytes("text")}}}, {}).status()));
  Checkpoints next({&store, "run"}, memory);
  ASSERT_TRUE(next.Save(2, {{"model", {AsBytes("text")}}}, {}).ok());
  EXPECT_EQ(next.Find(std::nullopt)->step, 2u);
}

// The store was updated, and holds conditions by now.
TEST(CheckpointsWeak, AStoreThatLearnsConditionsIsFenced) {
  SpoiledStore store(std::make_unique<MemoryStore>("m"));
  MemoryBudget memory(64 << 20);
  store.IgnoreConditions();
  ASSERT_TRUE(Checkpoints({&store, "run"}, memory).Save(1, {{"model", {AsBytes("text")}}}, {}).ok());
  store.IgnoreConditions(false);
  Checkpoints checkpoints({&store, "run"}, memory);
  const auto saved = checkpoints.Save(2, {{"model", {AsBytes("text")}}}, {});
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_TRUE((*checkpoints.ReadCatalog())->conditional_writes);
  EXPECT_EQ((*checkpoints.ReadCatalog())->entries.size(), 2u);
}

// The file that a sleeping process makes has a number that was in use long ago.
TEST(CheckpointsFolder, ALateFileOfALowerNumberDoesNotCount) {
  const TempFolder folder;
  FileStore store(folder.path());
  LatestFile latest(store, "");
  CheckpointCatalog catalog;
  std::string version;
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
    catalog.writer = {epoch, "w"};
    ASSERT_TRUE(latest.Replace(catalog, version).ok());
    version = latest.Read({})->version;
  }
  EXPECT_EQ(ListAll(store, "")->size(), 1u);
  catalog.writer = {9, "zombie"};
  EXPECT_TRUE(absl::IsFailedPrecondition(latest.Replace(catalog, "1")));  // makes number 2 again
  EXPECT_EQ(latest.Read({})->catalog->writer.epoch, 5u);
  EXPECT_TRUE(absl::IsFailedPrecondition(latest.Replace(catalog, "4")));
  catalog.writer = {6, "w"};
  ASSERT_TRUE(latest.Replace(catalog, "5").ok());
  EXPECT_EQ(latest.Read({})->catalog->writer.epoch, 6u);
  EXPECT_EQ(ListAll(store, "")->size(), 1u);
}

}  // namespace
}  // namespace millrace
