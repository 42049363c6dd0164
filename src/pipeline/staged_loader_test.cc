#include "pipeline/staged_loader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "shard/tar_writer.h"
#include "store/blocking.h"
#include "store/request_counts.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kShards = 230;  // stages have 64, some 128, and the rest of them

std::string TextTar(int shard, int samples) {
  std::string out;
  for (int i = 0; i < samples; ++i) {
    const std::string text = fmt::format("sample {} of {}{}", i, shard, std::string(static_cast<size_t>(shard), '.'));
    EXPECT_TRUE(AppendTarHeader(out, fmt::format("{:03}-{}.txt", shard, i), text.size()).ok());
    out += text;
    AppendTarPadding(out, text.size());
  }
  AppendTarEnd(out);
  return out;
}

struct Taken {
  std::vector<std::string> samples;    // "key text", in order
  std::vector<std::string> positions;  // after each batch
  std::vector<size_t> at;              // samples before it
  std::vector<int64_t> numbers;
};

class StagedLoaderTest : public ::testing::Test {
 protected:
  StagedLoaderTest()
      : cache_(std::filesystem::path(::testing::TempDir()) / fmt::format("staged-{}", getpid())),
        runtime_({.io_threads = 1, .cpu_threads = 2, .memory_bytes = uint64_t{256} << 20}),
        stores_(runtime_) {
    std::filesystem::create_directories(cache_);
    for (int i = 0; i < kShards; ++i) Put(i, TextTar(i, i % 7));
  }
  ~StagedLoaderTest() override { std::filesystem::remove_all(cache_); }

  void Put(int shard, const std::string& bytes) {
    const Location data = *stores_.Open("mem://data");
    ASSERT_TRUE(PutBlocking(*data.store, fmt::format("{:03}.tar", shard), AsBytes(bytes)).ok());
  }
  void RemoveIndexes() {
    const Location data = *stores_.Open("mem://data");
    const std::vector<ObjectInfo> all = *ListAll(*data.store, ".millrace/");
    for (const ObjectInfo& object : all) ASSERT_TRUE(DeleteBlocking(*data.store, object.key).ok());
  }
  OpenOptions Open() {
    OpenOptions open;
    open.cache_folder = cache_.string();
    return open;
  }
  std::unique_ptr<Dataset> OpenWhole() { return *Dataset::Open(runtime_, stores_, "mem://data", Open()); }

  static LoaderOptions Options(uint64_t epochs = 1) {
    LoaderOptions options;
    BatchField text;
    text.name = "text";
    text.kind = BatchField::Kind::kText;
    text.field = "txt";
    options.fields = {text};
    options.batch = 5;
    options.seed = 11;
    options.epochs = epochs;
    options.last = LastBatch::kShort;
    options.memory_bytes = uint64_t{32} << 20;
    options.digest = DigestOf::kRaw;
    return options;
  }
  absl::StatusOr<std::unique_ptr<StagedLoader>> TryMake(const LoaderOptions& options) {
    absl::StatusOr<std::unique_ptr<StagedDataset>> data = StagedDataset::Open(runtime_, stores_, "mem://data", Open());
    EXPECT_TRUE(data.ok()) << data.status();
    return StagedLoader::Create(runtime_, *std::move(data), options);
  }
  std::unique_ptr<StagedLoader> Make(const LoaderOptions& options) {
    absl::StatusOr<std::unique_ptr<StagedLoader>> loader = TryMake(options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    return *std::move(loader);
  }

  // Takes at most so many batches.
  static Taken Take(BatchSource& loader, uint64_t batches = UINT64_MAX) {
    Taken taken;
    for (; batches > 0; --batches) {
      absl::StatusOr<std::optional<Batch>> next = loader.Next();
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok() || !*next) break;
      Add(**next, &taken);
    }
    return taken;
  }
  static void Add(const Batch& batch, Taken* taken) {
    for (uint64_t row = 0; row < batch.valid; ++row) {
      taken->samples.push_back(batch.keys[row] + " " + batch.values[0].rows[row]);
      taken->numbers.push_back(batch.Array<int64_t>("sample")[row]);
    }
    taken->positions.push_back(batch.position.ToString());
    taken->at.push_back(taken->samples.size());
  }
  // Takes all memory that the process's budget has left, but for some hundred bytes.
  std::vector<Reservation> TakeMemory() {
    std::vector<Reservation> taken;
    for (uint64_t bytes = runtime_.memory().limit(); bytes >= 256; bytes /= 2) {
      while (Reservation one = runtime_.memory().TryReserve(bytes)) taken.push_back(std::move(one));
    }
    return taken;
  }
  static std::vector<std::string> Sorted(std::vector<std::string> samples) {
    std::sort(samples.begin(), samples.end());
    return samples;
  }
  std::vector<std::string> AllSamples() {
    const auto whole = OpenWhole();
    const auto loader = *Loader::Create(runtime_, *whole, Options());
    std::vector<std::string> all = Sorted(Take(*loader).samples);
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  // Expects that the batch is that of the step after `consumed` samples of an epoch in this order.
  static void CheckBatch(const Batch& batch, const Batching& batching, uint64_t consumed,
                         const std::vector<std::string>& order) {
    ASSERT_EQ(batch.size, batching.Rows(consumed));
    ASSERT_EQ(batch.valid, batching.Taken(consumed));
    ASSERT_EQ(batch.last_of_epoch, batching.StepsFrom(batching.After(consumed)) == 0);
    const Position& position = batch.position;
    ASSERT_EQ(position.epoch, batch.last_of_epoch ? 1 : 0);
    if (!batch.last_of_epoch) {
      ASSERT_EQ(position.stage->before + position.consumed, batching.After(consumed));
    }
    for (uint64_t row = 0; row < batch.size; ++row) {
      const Batching::Slot slot = batching.At(consumed, row);
      const std::string text = batch.keys[row] + " " + batch.values[0].rows[row];
      const bool repeats_any = slot.padding && batching.last == LastBatch::kShort;
      ASSERT_EQ(batch.Array<bool>("valid")[row], !slot.padding || batching.last == LastBatch::kWrap);
      if (slot.padding && batching.last == LastBatch::kPad) {
        ASSERT_EQ(text, " ");
      } else if (repeats_any) {
        ASSERT_TRUE(std::find(order.begin(), order.end(), text) != order.end()) << text;
      } else {
        ASSERT_EQ(text, order[slot.position]) << row;
      }
    }
  }
  // Returns all that the ranks take of one epoch, or of its rest from `start` on.
  std::vector<std::string> TakeWorld(uint64_t world, std::optional<Position> start = std::nullopt) {
    std::vector<std::string> all;
    for (uint64_t rank = 0; rank < world; ++rank) {
      LoaderOptions options = Options();
      options.rank = rank;
      options.world = world;
      options.start = start;
      const Taken taken = Take(*Make(options));
      all.insert(all.end(), taken.samples.begin(), taken.samples.end());
    }
    return all;
  }

  const std::filesystem::path cache_;
  Runtime runtime_;
  Stores stores_;
};

TEST_F(StagedLoaderTest, DeliversEachSampleOnceWithoutAnIndex) {
  const Taken staged = Take(*Make(Options()));
  for (const int64_t number : staged.numbers) EXPECT_EQ(number, -1);
  EXPECT_EQ(staged.positions.back().substr(0, 10), "mr3-1-0-0-");
  EXPECT_EQ(Sorted(staged.samples), AllSamples());
}

TEST_F(StagedLoaderTest, AnIndexChangesNothing) {
  const Taken without = Take(*Make(Options()));
  RemoveIndexes();
  OpenWhole();
  const Taken with = Take(*Make(Options()));
  EXPECT_EQ(with.samples, without.samples);
  EXPECT_EQ(with.positions, without.positions);
}

// Position p of the concatenation belongs to rank p mod W, even if a stage begins at a position that is no multiple.
TEST_F(StagedLoaderTest, RanksTakeTheirPositionsOfTheConcatenation) {
  const std::vector<std::string> order = Take(*Make(Options())).samples;
  for (const uint64_t world : {2u, 3u, 8u}) {
    for (uint64_t rank = 0; rank < world; ++rank) {
      LoaderOptions options = Options();
      options.rank = rank;
      options.world = world;
      std::vector<std::string> expected;
      for (size_t i = rank; i < order.size(); i += world) expected.push_back(order[i]);
      EXPECT_EQ(Take(*Make(options)).samples, expected) << rank << " of " << world;
    }
  }
}

// Batches are those of one epoch of so many samples: all are full except the last one, even if stages end within them.
TEST_F(StagedLoaderTest, StepsSpanStages) {
  const std::vector<std::string> order = Take(*Make(Options())).samples;
  for (const LastBatch last : {LastBatch::kShort, LastBatch::kPad, LastBatch::kWrap, LastBatch::kDrop}) {
    for (const auto& [batch, world] : {std::pair<uint64_t, uint64_t>{5, 1}, {7, 2}, {64, 3}, {50, 8}, {100, 8}}) {
      Batching batching{.samples = order.size(), .batch = batch, .world = world, .last = last};
      for (uint64_t rank = 0; rank < world; rank += rank + 2 < world ? 2 : 1) {
        SCOPED_TRACE(fmt::format("last {}, batch {}, rank {} of {}", static_cast<int>(last), batch, rank, world));
        batching.rank = rank;
        LoaderOptions options = Options();
        options.batch = batch;
        options.rank = rank;
        options.world = world;
        options.last = last;
        const auto loader = Make(options);
        if (!batching.Check().ok()) {
          EXPECT_EQ(loader->Next().status().message(), "mem://data: " + std::string(batching.Check().message()));
          continue;
        }
        uint64_t consumed = 0;
        for (; batching.StepsFrom(consumed) > 0; consumed = batching.After(consumed)) {
          const absl::StatusOr<std::optional<Batch>> next = loader->Next();
          ASSERT_TRUE(next.ok() && *next) << next.status();
          CheckBatch(**next, batching, consumed, order);
        }
        const absl::StatusOr<std::optional<Batch>> end = loader->Next();
        EXPECT_TRUE(end.ok() && !*end) << end.status();
      }
    }
  }
}

TEST_F(StagedLoaderTest, ResumesAnywhereInAnyWorldWithOrWithoutAnIndex) {
  const Taken all = Take(*Make(Options()));
  for (size_t i = 0; i + 1 < all.positions.size(); i += 17) {
    // In turn, the loader has the parts, nothing, and the index.
    if (i % 3 == 1) RemoveIndexes();
    if (i % 3 == 2) OpenWhole();
    const Position start = *Position::Parse(all.positions[i]);
    const std::vector<std::string> rest(all.samples.begin() + static_cast<std::ptrdiff_t>(all.at[i]),
                                        all.samples.end());
    for (const uint64_t world : {1u, 2u, 3u, 8u})
      EXPECT_EQ(Sorted(TakeWorld(world, start)), Sorted(rest)) << all.positions[i] << " " << world;
  }
}

// Some programs describe a loader once, and make it again for other positions.
TEST_F(StagedLoaderTest, WithFactsItBeginsAnywhere) {
  const Taken all = Take(*Make(Options(/*epochs=*/2)));
  std::unique_ptr<StagedDataset> data = *StagedDataset::Open(runtime_, stores_, "mem://data", Open());
  const absl::StatusOr<StagedFacts> facts = DescribeStaged(*data, Options());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->start.ToString().substr(0, 12), "mr3-0-0-0-0-");
  for (size_t i = 0; i < all.positions.size(); i += 37) {
    if (i % 2 == 1) RemoveIndexes();
    LoaderOptions options = Options(/*epochs=*/2);
    options.start = *Position::Parse(all.positions[i]);
    const auto loader = StagedLoader::Create(runtime_, data->Again(), options, *facts);
    ASSERT_TRUE(loader.ok()) << loader.status();
    EXPECT_EQ((*loader)->shapes(), facts->shapes);
    EXPECT_EQ((*loader)->report().position.ToString(), all.positions[i]);
    const Taken rest = Take(**loader);
    EXPECT_TRUE(std::equal(rest.samples.begin(), rest.samples.end(),
                           all.samples.begin() + static_cast<std::ptrdiff_t>(all.at[i]), all.samples.end()))
        << all.positions[i];
  }
  LoaderOptions other = Options();
  other.seed = 12;
  other.start = facts->start;
  EXPECT_TRUE(absl::IsFailedPrecondition(StagedLoader::Create(runtime_, data->Again(), other, *facts).status()));
}

TEST_F(StagedLoaderTest, AResumeReadsTheStageAlone) {
  const Taken all = Take(*Make(Options()));
  const std::string last = *std::find_if(all.positions.rbegin(), all.positions.rend(),
                                         [](const std::string& text) { return text.starts_with("mr3-0-"); });
  RemoveIndexes();
  std::unique_ptr<StagedDataset> data = *StagedDataset::Open(runtime_, stores_, "mem://data", Open());
  const StagedDataset& opened = *data;
  LoaderOptions options = Options();
  options.start = *Position::Parse(last);
  const uint64_t stage = options.start->stage->number;
  EXPECT_GT(stage, 0u);
  const uint64_t shards = opened.StagesOf(options.seed).ShardsOf(stage).size();
  EXPECT_LT(shards, static_cast<uint64_t>(kShards));
  const auto loader = *StagedLoader::Create(runtime_, std::move(data), options);
  Take(*loader);
  EXPECT_EQ(opened.indexed_shards(), shards);
  const Location place = *stores_.Open("mem://data");
  EXPECT_FALSE(HeadBlocking(*place.store, ".millrace/index").ok()) << "for which all shards would be read";
}

TEST_F(StagedLoaderTest, LaterEpochsAreThoseOfTheIndex) {
  const Taken staged = Take(*Make(Options(/*epochs=*/3)));
  const std::vector<std::string> all = AllSamples();
  ASSERT_EQ(staged.samples.size(), 3 * all.size());
  const auto whole = OpenWhole();
  LoaderOptions options = Options(/*epochs=*/3);
  const auto indexed = *Loader::Create(runtime_, *whole, options);
  const Taken expected = Take(*indexed);
  const auto first = static_cast<std::ptrdiff_t>(all.size());
  EXPECT_TRUE(std::equal(staged.samples.begin() + first, staged.samples.end(), expected.samples.begin() + first));
  EXPECT_TRUE(std::equal(staged.numbers.begin() + first, staged.numbers.end(), expected.numbers.begin() + first));
  for (size_t i = 0; i < staged.positions.size(); i += 13) {
    options = Options(/*epochs=*/3);
    options.start = *Position::Parse(staged.positions[i]);
    const Taken rest = Take(*Make(options));
    EXPECT_TRUE(std::equal(rest.samples.begin(), rest.samples.end(),
                           staged.samples.begin() + static_cast<std::ptrdiff_t>(staged.at[i]), staged.samples.end()))
        << staged.positions[i];
  }
}

TEST_F(StagedLoaderTest, TheIndexIsThereAtTheEndAndItsPartsAreGone) {
  for (const uint64_t epochs : {1, 2}) {
    RemoveIndexes();
    Take(*Make(Options(epochs)));
    const auto whole = OpenWhole();
    EXPECT_FALSE(whole->built());
    const Location data = *stores_.Open("mem://data");
    EXPECT_EQ(ListAll(*data.store, ".millrace/index.part-")->size(), 0u);
  }
}

TEST_F(StagedLoaderTest, DigestsOfRanksAddUp) {
  const auto one = Make(Options());
  Take(*one);
  Uint128 sum;
  for (uint64_t rank = 0; rank < 3; ++rank) {
    LoaderOptions options = Options();
    options.rank = rank;
    options.world = 3;
    const auto loader = Make(options);
    Take(*loader);
    sum += loader->report().digest;
  }
  EXPECT_EQ(one->report().digest, sum);
}

TEST_F(StagedLoaderTest, WaitReadyNeverBlocks) {
  const std::vector<std::string> expected = Take(*Make(Options(2))).samples;
  RemoveIndexes();
  const auto loader = Make(Options(2));
  std::vector<std::string> samples;
  while (true) {
    while (!loader->WaitReady(std::chrono::milliseconds(1))) {
    }
    const Taken taken = Take(*loader, 1);
    if (taken.positions.empty()) break;
    samples.insert(samples.end(), taken.samples.begin(), taken.samples.end());
  }
  EXPECT_EQ(samples, expected);
}

TEST_F(StagedLoaderTest, AShardThatChangesAfterTheListingEndsTheStream) {
  const auto staged = StagedDataset::Open(runtime_, stores_, "mem://data", Open());
  ASSERT_TRUE(staged.ok());
  const Stages stages = (*staged)->StagesOf(Options().seed);
  const auto loader = Make(Options());
  // A shard of the last stage is changed; the stage is not indexed before the first one has been taken.
  Put(static_cast<int>(stages.ShardsOf(stages.size() - 1).front()), TextTar(500, 3));
  absl::Status end;
  while (end.ok()) {
    const absl::StatusOr<std::optional<Batch>> next = loader->Next();
    end = next.status();
    if (next.ok() && !*next) break;
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(end)) << end;
}

// Other loaders have the memory that a stage needs to be opened, until they end.
TEST_F(StagedLoaderTest, ALaterCallOpensAStageThatLackedMemory) {
  const LoaderOptions whole = Options(/*epochs=*/2);
  const Taken all = Take(*Make(whole));
  const std::unique_ptr<StagedDataset> data = *StagedDataset::Open(runtime_, stores_, "mem://data", Open());
  const absl::StatusOr<StagedFacts> facts = DescribeStaged(*data, whole);
  ASSERT_TRUE(facts.ok()) << facts.status();
  uint64_t opened = 0;
  for (size_t i = 0; i < all.positions.size(); i += 17) {
    LoaderOptions options = whole;
    options.start = *Position::Parse(all.positions[i]);
    if (options.start->epoch == 0 && options.start->stage->number == 0) continue;  // that stage is opened already
    RemoveIndexes();
    std::vector<Reservation> others = TakeMemory();
    const auto loader = StagedLoader::Create(runtime_, data->Again(), options, *facts);
    ASSERT_TRUE(loader.ok()) << loader.status();
    for (int call = 0; call < 2; ++call) {
      const absl::Status lacking = (*loader)->Next().status();
      EXPECT_TRUE(absl::IsResourceExhausted(lacking)) << lacking;
    }
    others.clear();
    EXPECT_EQ(Take(**loader).samples,
              std::vector<std::string>(all.samples.begin() + static_cast<std::ptrdiff_t>(all.at[i]), all.samples.end()))
        << all.positions[i];
    ++opened;
  }
  EXPECT_GT(opened, 5u);
}

TEST_F(StagedLoaderTest, MemoryThatIsLackingForATimeCostsNoSample) {
  for (const LastBatch last : {LastBatch::kShort, LastBatch::kPad, LastBatch::kWrap, LastBatch::kDrop}) {
    for (const uint64_t batch : {5, 64}) {
      SCOPED_TRACE(fmt::format("last {}, batch {}", static_cast<int>(last), batch));
      LoaderOptions options = Options(/*epochs=*/2);
      options.last = last;
      options.batch = batch;
      const Taken expected = Take(*Make(options));
      RemoveIndexes();
      const auto loader = Make(options);
      Taken taken;
      uint64_t refused = 0;
      while (true) {
        std::vector<Reservation> others = TakeMemory();
        absl::StatusOr<std::optional<Batch>> next = loader->Next();
        for (; absl::IsResourceExhausted(next.status()); ++refused) {
          others.clear();
          next = loader->Next();
        }
        ASSERT_TRUE(next.ok()) << next.status();
        if (!*next) break;
        Add(**next, &taken);
      }
      EXPECT_GT(refused, 0u);
      EXPECT_EQ(taken.samples, expected.samples);
      EXPECT_EQ(taken.positions, expected.positions);
    }
  }
}

TEST_F(StagedLoaderTest, ASampleThatIsTooLargeForAStageNamesTheOtherStart) {
  const LoaderOptions options = Options();
  std::string large;
  EXPECT_TRUE(AppendTarHeader(large, "large.txt", 4 << 20).ok());
  large.append(4 << 20, 'x');
  AppendTarEnd(large);
  const Stages stages = (*StagedDataset::Open(runtime_, stores_, "mem://data", Open()))->StagesOf(options.seed);
  Put(static_cast<int>(stages.ShardsOf(stages.size() - 1).front()), large);
  const auto loader = Make(options);
  absl::Status end;
  uint64_t batches = 0;
  for (; end.ok(); ++batches) end = loader->Next().status();
  EXPECT_GT(batches, 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(end)) << end;
  EXPECT_THAT(std::string(end.message()),
              AllOf(HasSubstr("in a later stage (use --start indexed (in Python start=\"indexed\"))"),
                    HasSubstr("a third of the memory"), HasSubstr("would do")));
  EXPECT_EQ(loader->Next().status(), end);

  Put(static_cast<int>(stages.ShardsOf(0).front()), large);
  const absl::Status first = TryMake(options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(first)) << first;
  EXPECT_THAT(std::string(first.message()), HasSubstr("start=\"indexed\""));
}

// It was not written by a loader: that position is the start of the next stage.
TEST_F(StagedLoaderTest, APositionBehindTheSamplesOfItsStageIsAnError) {
  const Taken all = Take(*Make(Options()));
  const std::string next = *std::find_if(all.positions.begin(), all.positions.end(), [](const std::string& text) {
    return Position::Parse(text)->stage->number == 1;
  });
  Position start = *Position::Parse(next);
  start.consumed = start.stage->before;
  start.stage = Position::Stage{.number = 0, .before = 0};
  LoaderOptions options = Options();
  options.start = start;
  const absl::Status refused = TryMake(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
}

TEST_F(StagedLoaderTest, ShardsAreNotReadAgainForAnIndexOfWhichNoPartWasKept) {
  const std::filesystem::path file = cache_ / "a-file";
  std::ofstream(file) << "x";
  OpenOptions open = Open();
  open.cache_folder = file.string();
  open.index = IndexUse::kCache;
  const RequestCounters& counters = stores_.Open("mem://data")->store->counters();
  const auto read = [&] { return RequestCounts::Of(counters).bytes_read; };
  std::unique_ptr<StagedDataset> data = *StagedDataset::Open(runtime_, stores_, "mem://data", open);
  const uint64_t total = data->total_bytes();
  {
    const auto loader = *StagedLoader::Create(runtime_, std::move(data), Options());
    Take(*loader);
  }
  EXPECT_LT(read(), 5 * total / 2) << "once to index them, and once to deliver them";
}

TEST_F(StagedLoaderTest, RefusesWhatCannotBeStaged) {
  LoaderOptions mixed = Options();
  mixed.mix.emplace();
  const absl::Status refused = TryMake(mixed).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--start indexed"));
  const Position good = Make(Options())->report().position;
  for (const Position& other :
       {Position{0, 0, good.fingerprint}, Position{0, 0, good.fingerprint + 1, Position::Stage{}},
        Position{0, 0, good.fingerprint, Position::Stage{.number = 99}},
        Position{1, 0, good.fingerprint, Position::Stage{.number = 1}}}) {
    LoaderOptions options = Options();
    options.start = other;
    EXPECT_FALSE(TryMake(options).ok()) << other.ToString();
  }
  LoaderOptions options = Options();
  options.start = good;
  EXPECT_TRUE(TryMake(options).ok());
  options.seed = 12;
  EXPECT_TRUE(absl::IsFailedPrecondition(TryMake(options).status()));
}

}  // namespace
}  // namespace millrace
