#include "checkpoint/save_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/rng.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Step = SaveProtocol::Step;

constexpr const char* kAttempt = "e1-00000000000000aa";

CheckpointCatalog OwnCatalog() {
  CheckpointCatalog catalog;
  catalog.writer = {1, "me"};
  catalog.entries = {{.step = 1, .attempt = "e1-0000000000000001"}, {.step = 2, .attempt = "e1-0000000000000002"}};
  return catalog;
}

SaveProtocol NewSave(uint64_t keep = 0) {
  return SaveProtocol({.writer = {1, "me"}, .entry = {.step = 3, .attempt = kAttempt}, .retention = {.keep = keep}});
}

LatestRecord Own(const std::string& version = "v1") {
  return {OwnCatalog(), version};
}

LatestRecord OfAnother() {
  LatestRecord record = Own("v2");
  record.catalog->writer = {2, "other"};
  return record;
}

absl::Status Down() {
  return absl::UnavailableError("the store does not answer");
}
absl::Status Lost() {
  return absl::FailedPreconditionError("another version");
}

// Runs the protocol up to the step where LATEST is replaced.
SaveProtocol AtCommit(uint64_t keep = 0) {
  SaveProtocol save = NewSave(keep);
  save.OnLatest(Own());
  save.OnUploaded(absl::OkStatus());
  save.OnManifest(CheckpointEntry{.step = 3, .attempt = kAttempt, .bytes = 9});
  EXPECT_EQ(save.next(), Step::kWriteLatest);
  return save;
}

std::vector<std::string> Attempts(const std::vector<CheckpointAttempt>& attempts) {
  std::vector<std::string> names;
  for (const auto& attempt : attempts) names.push_back(attempt.attempt);
  return names;
}

TEST(SaveProtocol, CommitsAndThenRemovesWhatIsSuperseded) {
  SaveProtocol save = NewSave(/*keep=*/2);
  EXPECT_EQ(save.next(), Step::kReadLatest);
  save.OnLatest(Own());
  EXPECT_EQ(save.next(), Step::kUpload);
  save.OnUploaded(absl::OkStatus());
  EXPECT_EQ(save.next(), Step::kWriteManifest);
  save.OnManifest(CheckpointEntry{.step = 3, .attempt = kAttempt, .bytes = 9});
  EXPECT_EQ(save.next(), Step::kWriteLatest);
  EXPECT_EQ(save.version(), "v1");
  EXPECT_EQ(save.to_write().writer.epoch, 1u);
  EXPECT_EQ(save.to_write().entries.size(), 2u);
  EXPECT_EQ(save.to_write().Newest()->bytes, 9u);
  EXPECT_THAT(save.to_remove(), IsEmpty());  // nothing before the commit
  save.OnWritten(absl::OkStatus());
  EXPECT_EQ(save.next(), Step::kRemove);
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre("e1-0000000000000001"));
  save.OnRemoved();
  EXPECT_EQ(save.next(), Step::kDone);
  EXPECT_TRUE(save.status().ok());
}

TEST(SaveProtocol, ReplacesACheckpointOfTheSameStep) {
  SaveProtocol save({.writer = {1, "me"}, .entry = {.step = 1, .attempt = kAttempt}});
  save.OnLatest(Own());
  save.OnUploaded(absl::OkStatus());
  save.OnManifest(save.entry());
  EXPECT_EQ(save.to_write().entries.size(), 2u);
  EXPECT_EQ(save.to_write().Newest()->step, 1u);
  save.OnWritten(absl::OkStatus());
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre("e1-0000000000000001"));
}

TEST(SaveProtocol, ReadingLatestFails) {
  SaveProtocol save = NewSave();
  save.OnLatest(Down());
  EXPECT_EQ(save.next(), Step::kDone);
  EXPECT_TRUE(absl::IsUnavailable(save.status()));
}

TEST(SaveProtocol, AnotherWriterIsFoundBeforeAnythingIsUploaded) {
  SaveProtocol save = NewSave();
  save.OnLatest(OfAnother());
  EXPECT_EQ(save.next(), Step::kDone);
  EXPECT_TRUE(absl::IsFailedPrecondition(save.status()));
  // Nor is a process of the same epoch this one.
  SaveProtocol twin = NewSave();
  LatestRecord record = Own();
  record.catalog->writer.id = "twin";
  twin.OnLatest(record);
  EXPECT_TRUE(absl::IsFailedPrecondition(twin.status()));
}

TEST(SaveProtocol, LatestIsGone) {
  SaveProtocol save = NewSave();
  save.OnLatest(LatestRecord());
  EXPECT_EQ(save.next(), Step::kDone);
  EXPECT_TRUE(absl::IsFailedPrecondition(save.status()));
}

TEST(SaveProtocol, UploadFails) {
  SaveProtocol save = NewSave();
  save.OnLatest(Own());
  save.OnUploaded(Down());
  EXPECT_EQ(save.next(), Step::kRemove);
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre(kAttempt));  // its own, and nothing else
  save.OnRemoved();
  EXPECT_EQ(save.next(), Step::kDone);
  EXPECT_TRUE(absl::IsUnavailable(save.status()));
}

TEST(SaveProtocol, ManifestFails) {
  SaveProtocol save = NewSave(/*keep=*/1);
  save.OnLatest(Own());
  save.OnUploaded(absl::OkStatus());
  save.OnManifest(Down());
  EXPECT_EQ(save.next(), Step::kRemove);
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre(kAttempt));
}

// A successor sweeps what older epochs are writing, so that the uploads fail as if someone had removed the
// folder.
TEST(SaveProtocol, ASweptUploadIsRefusedAsAClaimIs) {
  const absl::Status gone = absl::NotFoundError("the folder is gone");
  for (const bool at_manifest : {false, true}) {
    for (const bool claimed : {false, true}) {
      SaveProtocol save = NewSave();
      save.OnLatest(Own());
      save.OnUploaded(at_manifest ? absl::OkStatus() : gone);
      if (at_manifest) save.OnManifest(gone);
      ASSERT_EQ(save.next(), Step::kReadLatest);
      save.OnLatest(claimed ? OfAnother() : Own());
      EXPECT_EQ(save.next(), Step::kRemove);
      EXPECT_THAT(Attempts(save.to_remove()), ElementsAre(kAttempt));
      save.OnRemoved();
      EXPECT_EQ(save.next(), Step::kDone);
      EXPECT_EQ(save.status().code(), claimed ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kNotFound);
    }
  }
}

TEST(SaveProtocol, AnswerOfTheCommitIsLost) {
  SaveProtocol save = AtCommit(/*keep=*/1);
  const CheckpointCatalog written = save.to_write();
  save.OnWritten(Down());
  EXPECT_EQ(save.next(), Step::kReadLatest);
  save.OnLatest(LatestRecord{written, "v2"});
  EXPECT_EQ(save.next(), Step::kRemove);
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre("e1-0000000000000001", "e1-0000000000000002"));
  EXPECT_TRUE(save.status().ok());
}

// The request may still arrive: what it would commit stays, and so does what it would supersede.
TEST(SaveProtocol, UnsureCommitRemovesNothing) {
  const absl::StatusOr<LatestRecord> kFound[] = {Own(), Own("v9"), OfAnother(), LatestRecord(), Down()};
  for (const absl::StatusOr<LatestRecord>& found : kFound) {
    SaveProtocol save = AtCommit(/*keep=*/1);
    save.OnWritten(Down());
    save.OnLatest(found);
    EXPECT_EQ(save.next(), Step::kDone);
    EXPECT_FALSE(save.status().ok());
  }
}

TEST(SaveProtocol, ZombieIsRefusedAndRemovesOnlyItsOwn) {
  SaveProtocol save = AtCommit(/*keep=*/1);
  save.OnWritten(Lost());
  EXPECT_EQ(save.next(), Step::kReadLatest);
  save.OnLatest(OfAnother());
  EXPECT_EQ(save.next(), Step::kRemove);
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre(kAttempt));
  save.OnRemoved();
  EXPECT_TRUE(absl::IsFailedPrecondition(save.status()));
}

// A request that was repeated meets the version that it wrote itself; somebody may have claimed that one already.
TEST(SaveProtocol, CommitThatMetItself) {
  SaveProtocol save = AtCommit();
  CheckpointCatalog written = save.to_write();
  written.writer = {2, "other"};
  save.OnWritten(Lost());
  save.OnLatest(LatestRecord{written, "v3"});
  EXPECT_EQ(save.next(), Step::kDone);
  EXPECT_TRUE(save.status().ok());
}

// An earlier, unsure commit of this writer arrived late: the catalog is made again, on top of it.
TEST(SaveProtocol, OwnLateCommitIsBuiltUpon) {
  SaveProtocol save = AtCommit(/*keep=*/2);
  save.OnWritten(Lost());
  LatestRecord record = Own("v2");
  record.catalog->entries.push_back({.step = 9, .attempt = "e1-0000000000000009"});
  save.OnLatest(record);
  EXPECT_EQ(save.next(), Step::kWriteLatest);
  EXPECT_EQ(save.version(), "v2");
  ASSERT_EQ(save.to_write().entries.size(), 2u);
  EXPECT_EQ(save.to_write().entries[0].step, 9u);
  save.OnWritten(absl::OkStatus());
  EXPECT_THAT(Attempts(save.to_remove()), ElementsAre("e1-0000000000000001", "e1-0000000000000002"));
}

TEST(SaveProtocol, CatalogHasABound) {
  LatestRecord full = Own();
  for (uint64_t step = 10; full.catalog->entries.size() < kMaxCheckpoints; ++step)
    full.catalog->entries.push_back({.step = step, .attempt = NewAttempt(1)});
  SaveProtocol save = NewSave();
  save.OnLatest(full);
  EXPECT_TRUE(absl::IsResourceExhausted(save.status()));
}

TEST(Retention, NewestAndEveryNth) {
  const auto remain = [](std::vector<uint64_t> steps, const Retention& retention) {
    CheckpointCatalog catalog;
    for (const uint64_t step : steps) catalog.entries.push_back({.step = step, .attempt = std::to_string(step)});
    const size_t gone = Supersede(catalog, retention).size();
    EXPECT_EQ(gone + catalog.entries.size(), steps.size());
    std::vector<uint64_t> left;
    for (const CheckpointEntry& entry : catalog.entries) left.push_back(entry.step);
    return left;
  };
  EXPECT_THAT(remain({1, 2, 3}, {}), ElementsAre(1, 2, 3));
  EXPECT_THAT(remain({1, 2, 3}, {.keep = 2}), ElementsAre(2, 3));
  EXPECT_THAT(remain({1, 2, 3}, {.keep = 5}), ElementsAre(1, 2, 3));
  EXPECT_THAT(remain({10, 15, 20, 25, 30}, {.keep = 1, .keep_every = 10}), ElementsAre(10, 20, 30));
  EXPECT_THAT(remain({10, 15, 20, 25, 35}, {.keep = 2, .keep_every = 20}), ElementsAre(20, 25, 35));
  EXPECT_THAT(remain({30, 20, 7}, {.keep = 1, .keep_every = 0}), ElementsAre(7));  // in the order of the commits
  EXPECT_THAT(remain({10, 15, 20, 25}, {.keep = 1, .keep_steps = {15, 99}}), ElementsAre(15, 25));
}

TEST(RetainProtocol, RemovesWhatLatestNoLongerNames) {
  RetainProtocol retain({.keep = 1});
  retain.OnLatest(Own());
  ASSERT_EQ(retain.next(), RetainProtocol::Step::kWriteLatest);
  EXPECT_EQ(retain.version(), "v1");
  EXPECT_EQ(retain.to_write().writer.id, "me");  // it claims nothing
  EXPECT_EQ(retain.to_write().entries.size(), 1u);
  retain.OnWritten(Lost());  // somebody has committed
  EXPECT_EQ(retain.next(), RetainProtocol::Step::kReadLatest);
  LatestRecord newer = Own("v2");
  newer.catalog->entries.push_back({.step = 9, .attempt = "e1-0000000000000009"});
  retain.OnLatest(newer);
  EXPECT_EQ(retain.to_write().Newest()->step, 9u);
  retain.OnWritten(absl::OkStatus());
  EXPECT_EQ(retain.next(), RetainProtocol::Step::kRemove);
  EXPECT_THAT(Attempts(retain.to_remove()), ElementsAre("e1-0000000000000001", "e1-0000000000000002"));
  retain.OnRemoved();
  EXPECT_EQ(retain.next(), RetainProtocol::Step::kDone);
  EXPECT_TRUE(retain.status().ok());
}

TEST(RetainProtocol, EveryStepMayFail) {
  {
    RetainProtocol retain({.keep = 1});
    retain.OnLatest(Down());
    EXPECT_TRUE(absl::IsUnavailable(retain.status()));
  }
  {
    RetainProtocol retain({.keep = 1});
    retain.OnLatest(Own());
    retain.OnWritten(Down());  // it may have been written
    EXPECT_EQ(retain.next(), RetainProtocol::Step::kDone);
    EXPECT_TRUE(absl::IsUnavailable(retain.status()));
    EXPECT_THAT(retain.to_remove(), IsEmpty());
  }
  {
    RetainProtocol retain({.keep = 2});
    retain.OnLatest(Own());  // there is nothing to do
    EXPECT_EQ(retain.next(), RetainProtocol::Step::kDone);
    EXPECT_TRUE(retain.status().ok());
  }
  {
    RetainProtocol retain({.keep = 1});
    LatestRecord weak = Own();
    weak.catalog->conditional_writes = false;
    retain.OnLatest(weak);
    EXPECT_TRUE(absl::IsFailedPrecondition(retain.status()));
    RetainProtocol empty({.keep = 1});
    empty.OnLatest(LatestRecord());
    EXPECT_TRUE(absl::IsNotFound(empty.status()));
  }
  RetainProtocol retain({.keep = 1});
  for (int i = 0; retain.next() != RetainProtocol::Step::kDone && i < 1000; ++i) {
    retain.OnLatest(Own());
    retain.OnWritten(Lost());
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(retain.status()));
  EXPECT_THAT(retain.to_remove(), IsEmpty());
}

TEST(ClaimProtocol, TakesTheNextEpochAndLeavesTheCheckpoints) {
  ClaimProtocol claim("new");
  claim.OnLatest(OfAnother());
  ASSERT_EQ(claim.next(), ClaimProtocol::Step::kWriteLatest);
  EXPECT_EQ(claim.to_write().writer.epoch, 3u);
  EXPECT_EQ(claim.to_write().entries, OwnCatalog().entries);
  EXPECT_EQ(claim.version(), "v2");
  claim.OnWritten(Lost());
  EXPECT_EQ(claim.next(), ClaimProtocol::Step::kReadLatest);
  claim.OnLatest(LatestRecord());
  EXPECT_EQ(claim.to_write().writer.epoch, 1u);
  claim.OnWritten(absl::OkStatus());
  EXPECT_EQ(claim.next(), ClaimProtocol::Step::kDone);
  EXPECT_TRUE(claim.status().ok());
}

TEST(ClaimProtocol, UnsureClaimIsLookedAt) {
  for (const bool landed : {false, true}) {
    ClaimProtocol claim("new");
    claim.OnLatest(Own());
    const CheckpointCatalog written = claim.to_write();
    claim.OnWritten(Down());
    claim.OnLatest(landed ? LatestRecord{written, "v2"} : Own());
    EXPECT_EQ(claim.next(), ClaimProtocol::Step::kDone);
    EXPECT_EQ(claim.status().ok(), landed);
  }
}

TEST(ClaimProtocol, EndsIfOthersAreAlwaysQuicker) {
  ClaimProtocol claim("new");
  int writes = 0;
  while (claim.next() != ClaimProtocol::Step::kDone && writes < 1000) {
    claim.OnLatest(OfAnother());
    if (claim.next() != ClaimProtocol::Step::kWriteLatest) break;
    ++writes;
    claim.OnWritten(Lost());
  }
  EXPECT_TRUE(absl::IsUnavailable(claim.status()));
}

// ---- Many writers at once, by a model of the store

/// A store that replaces LATEST as the version that is named, answers wrongly now and then, and lets requests arrive
/// late.
class World {
 public:
  explicit World(uint64_t seed) : rng_(HashKey(0x5ec0, {seed})) {}

  absl::StatusOr<LatestRecord> Read() {
    if (rng_.Below(12) == 0) return Down();
    return LatestRecord{latest_, std::to_string(version_)};
  }

  absl::Status Write(const CheckpointCatalog& catalog, const std::string& version) {
    const uint64_t luck = rng_.Below(12);
    if (luck == 0) return Down();
    if (luck == 1) {
      late_.push_back({catalog, version});
      return Down();
    }
    const absl::Status status = Apply(catalog, version);
    return luck == 2 ? Down() : status;
  }

  // Delivers one of the requests whose senders have got an error.
  void DeliverOneLate() {
    if (late_.empty()) return;
    Apply(late_.front().first, late_.front().second).IgnoreError();
    late_.pop_front();
  }

  void Upload(const std::string& attempt) { objects_.insert(attempt); }
  void WriteManifest(const std::string& attempt) { manifests_.insert(attempt); }
  void Remove(const std::string& attempt) {
    manifests_.erase(attempt);
    objects_.erase(attempt);
  }
  // Does the work of Checkpoints::Sweep after a claim.
  void Sweep(uint64_t epoch) {
    std::set<std::string> committed;
    for (const CheckpointEntry& entry : latest_->entries) committed.insert(entry.attempt);
    for (const std::string& attempt : std::set<std::string>(objects_)) {
      if (EpochOfAttempt(attempt) < epoch && !committed.contains(attempt)) Remove(attempt);
    }
  }

  void CheckWhole() const {
    if (!latest_) return;
    for (const CheckpointEntry& entry : latest_->entries)
      ASSERT_TRUE(objects_.contains(entry.attempt) && manifests_.contains(entry.attempt)) << entry.attempt;
    ASSERT_EQ(latest_->entries.empty(), commits_ == 0);
  }
  bool WasCommitted(const std::string& attempt) const { return committed_.contains(attempt); }
  int commits() const { return commits_; }
  Rng& rng() { return rng_; }

 private:
  absl::Status Apply(const CheckpointCatalog& catalog, const std::string& version) {
    if (version != std::to_string(version_)) return Lost();
    const uint64_t epoch = latest_ ? latest_->writer.epoch : 0;
    if (catalog.writer.epoch == epoch) {
      EXPECT_EQ(catalog.writer.id, latest_->writer.id) << "a commit of a writer that had not claimed";
      ++commits_;
    } else {
      EXPECT_EQ(catalog.writer.epoch, epoch + 1) << "an older epoch was accepted";
    }
    latest_ = catalog;
    ++version_;
    for (const CheckpointEntry& entry : catalog.entries) committed_.insert(entry.attempt);
    return absl::OkStatus();
  }

  Rng rng_;
  std::optional<CheckpointCatalog> latest_;
  uint64_t version_ = 0;
  std::deque<std::pair<CheckpointCatalog, std::string>> late_;
  std::set<std::string> objects_;
  std::set<std::string> manifests_;
  std::set<std::string> committed_;
  int commits_ = 0;
};

/// A process that claims and then saves again and again. Now and then it is killed, and the next one begins.
class Process {
 public:
  Process(World& world, int number) : world_(world), number_(number) { Restart(); }

  void DoOneStep() {
    if (world_.rng().Below(25) == 0) return Restart();  // SIGKILL
    if (!save_) return ClaimStep();
    SaveStep();
  }

  int refused() const { return refused_; }

 private:
  void Restart() {
    save_.reset();
    id_ = std::to_string(number_) + "-" + std::to_string(++lives_);
    claim_.emplace(id_);
  }

  void ClaimStep() {
    switch (claim_->next()) {
      case ClaimProtocol::Step::kReadLatest:
        return claim_->OnLatest(world_.Read());
      case ClaimProtocol::Step::kWriteLatest:
        return claim_->OnWritten(world_.Write(claim_->to_write(), claim_->version()));
      case ClaimProtocol::Step::kDone:
        if (!claim_->status().ok()) return Restart();
        epoch_ = claim_->to_write().writer.epoch;
        world_.Sweep(epoch_);
        NextSave();
    }
  }

  void NextSave() {
    save_.emplace(SaveProtocol::Job{.writer = {epoch_, id_},
                                    .entry = {.step = world_.rng().Below(6), .attempt = NewAttempt(epoch_)},
                                    .retention = {.keep = world_.rng().Below(4)}});
  }

  void SaveStep() {
    const bool fails = world_.rng().Below(20) == 0;
    const std::string attempt = save_->entry().attempt;
    switch (save_->next()) {
      case Step::kReadLatest:
        return save_->OnLatest(world_.Read());
      case Step::kUpload:
        world_.Upload(attempt);
        return save_->OnUploaded(fails ? Down() : absl::OkStatus());
      case Step::kWriteManifest:
        world_.WriteManifest(attempt);
        if (fails) return save_->OnManifest(Down());
        return save_->OnManifest(save_->entry());
      case Step::kWriteLatest:
        return save_->OnWritten(world_.Write(save_->to_write(), save_->version()));
      case Step::kRemove:
        for (const auto& old : save_->to_remove()) world_.Remove(old.attempt);
        return save_->OnRemoved();
      case Step::kDone:
        if (save_->status().ok()) {
          EXPECT_TRUE(world_.WasCommitted(attempt));
        }
        if (!absl::IsFailedPrecondition(save_->status())) return NextSave();
        ++refused_;  // a zombie: a new process takes its place
        Restart();
    }
  }

  World& world_;
  const int number_;
  int lives_ = 0;
  int refused_ = 0;
  std::string id_;
  uint64_t epoch_ = 0;
  std::optional<ClaimProtocol> claim_;
  std::optional<SaveProtocol> save_;
};

// Whatever is interleaved, fails, arrives late or is killed: LATEST names whole checkpoints only, none is lost once
// there is one, and no commit of an older epoch is accepted.
TEST(SaveProtocol, WritersInAnyOrderNeverLoseACheckpoint) {
  int commits = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    World world(seed);
    std::vector<std::unique_ptr<Process>> processes;
    for (int i = 0; i < 3; ++i) processes.push_back(std::make_unique<Process>(world, i));
    for (int i = 0; i < 400; ++i) {
      processes[world.rng().Below(processes.size())]->DoOneStep();
      if (world.rng().Below(10) == 0) world.DeliverOneLate();
      world.CheckWhole();
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
    commits += world.commits();
    for (const auto& process : processes) refused += process->refused();
  }
  EXPECT_GT(commits, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace millrace
