#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "pipeline/explain.h"
#include "pipeline/loader.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// A pair of Megatron in memory: token t of document d is 1 + d * 2^20 + t, as an int32.
class RowLoaderTest : public ::testing::Test {
 protected:
  RowLoaderTest() : runtime_({.io_threads = 1, .cpu_threads = 3}), stores_(runtime_) {}

  void Fill(const std::vector<uint32_t>& lengths) {
    std::string bin;
    std::string sizes;
    std::string offsets;
    std::string documents;
    for (uint32_t document = 0; document < lengths.size(); ++document) {
      AppendLe(sizes, lengths[document]);
      AppendLe(offsets, uint64_t{bin.size()});
      AppendLe(documents, uint64_t{document});
      for (uint32_t token = 0; token < lengths[document]; ++token) AppendLe(bin, 1 + (document << 20) + token);
      total_ += lengths[document];
    }
    AppendLe(documents, uint64_t{lengths.size()});
    std::string idx("MMIDIDX\0\0", 9);
    AppendLe(idx, uint64_t{1});
    idx += '\x04';
    AppendLe(idx, uint64_t{lengths.size()});
    AppendLe(idx, uint64_t{lengths.size() + 1});
    const Location data = *stores_.Open("mem://tokens");
    ASSERT_TRUE(PutBlocking(*data.store, "a.bin", AsBytes(bin)).ok());
    ASSERT_TRUE(PutBlocking(*data.store, "a.idx", AsBytes(idx + sizes + offsets + documents)).ok());
    absl::StatusOr<std::unique_ptr<Dataset>> opened = Dataset::Open(runtime_, stores_, "mem://tokens");
    ASSERT_TRUE(opened.ok()) << opened.status();
    dataset_ = *std::move(opened);
  }
  void FillRandom(uint64_t count, uint32_t most) {
    Rng rng(count);
    std::vector<uint32_t> lengths;
    for (uint64_t i = 0; i < count; ++i) lengths.push_back(static_cast<uint32_t>(rng.Below(rng.Below(most) + 1)));
    Fill(lengths);
  }

  Source Rows(const TokenOptions& tokens) {
    absl::StatusOr<Source> rows = Source::OfRows(stores_, *dataset_, tokens);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return *std::move(rows);
  }
  LoaderOptions Options(uint64_t batch, uint64_t memory_bytes) {
    LoaderOptions options;
    options.batch = batch;
    options.memory_bytes = memory_bytes;
    options.digest = DigestOf::kRaw;
    options.token_type = TokenType::kInt32;
    return options;
  }
  std::unique_ptr<Loader> Make(const Source& source, const LoaderOptions& options) {
    absl::StatusOr<std::unique_ptr<Loader>> loader = Loader::Create(runtime_, source, options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    return *std::move(loader);
  }

  static TokenOptions Layout(RowLayout layout, uint64_t length) { return {.layout = layout, .length = length}; }
  static TokenOptions Buckets() { return {.layout = RowLayout::kPad, .buckets = {{16, 24}, {64, 6}, {500, 1}}}; }

  // Expects that the loader delivers all tokens, each once; batches are released at once.
  void CheckEachTokenOnce(Loader& loader) {
    std::set<int32_t> seen;
    const std::vector<BatchShape> shapes = loader.shapes();
    for (;;) {
      absl::StatusOr<std::optional<Batch>> next = loader.Next();
      ASSERT_TRUE(next.ok()) << next.status();
      if (!*next) break;
      const Batch& batch = **next;
      ASSERT_LT(batch.shape, shapes.size());
      const std::span<const uint32_t> tokens = batch.Array<uint32_t>("tokens");
      const std::span<const uint8_t> token_mask = batch.Array<uint8_t>("token_mask");
      const std::span<const int32_t> position_ids = batch.Array<int32_t>("position_ids");
      const std::span<const int32_t> segment_ids = batch.Array<int32_t>("segment_ids");
      ASSERT_EQ(tokens.size(), batch.size * batch.length);
      for (uint64_t place = 0; place < batch.size * batch.length; ++place) {
        const auto token = static_cast<int32_t>(tokens[place]);
        if (token_mask[place] == 0) {
          ASSERT_EQ(token, 0);
          continue;
        }
        ASSERT_TRUE(seen.insert(token).second) << token;
        if (position_ids.empty() || position_ids[place] == 0) continue;
        const auto before = static_cast<int32_t>(tokens[place - 1]);
        ASSERT_EQ(token, before + 1);
        ASSERT_EQ(segment_ids[place], segment_ids[place - 1]);
        ASSERT_EQ(position_ids[place], position_ids[place - 1] + 1);
      }
    }
    EXPECT_EQ(seen.size(), total_);
    EXPECT_EQ(loader.report().tokens, total_);
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
  uint64_t total_ = 0;
};

TEST_F(RowLoaderTest, DeliversEachTokenOnce) {
  FillRandom(2000, 300);
  for (const RowLayout layout : {RowLayout::kPad, RowLayout::kStream, RowLayout::kPack}) {
    const Source source = Rows(Layout(layout, 128));
    for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
      LoaderOptions options = Options(8, uint64_t{16} << 20);
      options.shuffle = shuffle;
      CheckEachTokenOnce(*Make(source, options));
    }
  }
  CheckEachTokenOnce(*Make(Rows(Buckets()), Options(1, uint64_t{16} << 20)));
}

// The loader has the least memory that is accepted. Rows need many pieces, and pieces come of samples that are fetched
// whole. The loader still gets to its end: no row waits for memory that only it could free.
TEST_F(RowLoaderTest, NeedsNoMoreMemoryThanItSays) {
  std::vector<uint32_t> lengths;
  Rng rng(3);
  for (int i = 0; i < 300; ++i) lengths.push_back(static_cast<uint32_t>(rng.Below(10) == 0 ? 16000 : rng.Below(40)));
  Fill(lengths);
  for (const RowLayout layout : {RowLayout::kPad, RowLayout::kStream, RowLayout::kPack}) {
    const Source source = Rows(Layout(layout, 1000));
    uint64_t least = uint64_t{1} << 20;
    while (absl::IsResourceExhausted(Loader::Check(source, Options(4, least)))) least += 65536;
    for (const Shuffle shuffle : {Shuffle::kGlobal, Shuffle::kWindow}) {
      LoaderOptions options = Options(4, least);
      options.shuffle = shuffle;
      const auto loader = Make(source, options);
      EXPECT_LE(runtime_.memory().used(), least);
      CheckEachTokenOnce(*loader);
    }
  }
}

TEST_F(RowLoaderTest, TheDigestIsTheSameForAllWorldsAndLayoutsDiffer) {
  FillRandom(500, 200);
  std::set<std::string> digests;
  for (const TokenOptions& tokens :
       {Layout(RowLayout::kPad, 64), Layout(RowLayout::kStream, 64), Layout(RowLayout::kPack, 64), Buckets()}) {
    const Source source = Rows(tokens);
    std::set<std::string> of_worlds;
    for (const uint64_t world : {1, 2, 7, 16}) {
      Uint128 sum;
      uint64_t steps = 0;
      for (uint64_t rank = 0; rank < world; ++rank) {
        LoaderOptions options = Options(3, uint64_t{4} << 20);
        options.world = world;
        options.rank = rank;
        const auto loader = Make(source, options);
        uint64_t made = 0;
        while ((*loader->Next()).has_value()) ++made;
        EXPECT_EQ(made, loader->steps_per_epoch());
        EXPECT_TRUE(rank == 0 || made == steps);
        steps = made;
        sum += loader->report().digest;
      }
      of_worlds.insert(sum.Hex());
    }
    EXPECT_EQ(of_worlds.size(), 1u);
    digests.merge(of_worlds);
  }
  EXPECT_EQ(digests.size(), 4u);
}

// With buckets, all ranks are in the same one at the same step, also after resuming at any step.
TEST_F(RowLoaderTest, RanksAgreeOnTheBucketOfEachStep) {
  FillRandom(800, 200);
  const Source source = Rows(Buckets());
  for (const LastBatch last : {LastBatch::kPad, LastBatch::kDrop, LastBatch::kWrap}) {
    std::vector<size_t> shapes;
    std::vector<std::string> positions;
    for (uint64_t rank = 0; rank < 3; ++rank) {
      LoaderOptions options = Options(1, uint64_t{4} << 20);
      options.world = 3;
      options.rank = rank;
      options.last = last;
      const auto loader = Make(source, options);
      std::vector<size_t> mine;
      positions.clear();
      while (std::optional<Batch> batch = *loader->Next()) {
        mine.push_back(batch->shape);
        positions.push_back(batch->position.ToString());
      }
      EXPECT_TRUE(rank == 0 || mine == shapes);
      shapes = mine;
    }
    for (size_t step = 0; step + 1 < shapes.size(); step += 1 + step / 3) {
      LoaderOptions options = Options(1, uint64_t{4} << 20);
      options.world = 3;
      options.rank = 2;
      options.last = last;
      options.start = *Position::Parse(positions[step]);
      const auto loader = Make(source, options);
      EXPECT_EQ((*loader->Next())->shape, shapes[step + 1]);
    }
  }
}

// The order of steps depends on how many rows each has, not on how many ranks share them.
TEST_F(RowLoaderTest, AStepOfABucketMayBeSharedOtherwise) {
  FillRandom(800, 200);
  const auto rows_of = [](uint64_t world) {
    TokenOptions tokens = Buckets();
    const uint64_t rows[] = {24, 12, 6};
    for (size_t i = 0; i < 3; ++i) tokens.buckets[i].batch = rows[i] / world;
    return tokens;
  };
  using Step = std::multiset<uint64_t>;  // rows of all ranks, bucket by bucket
  for (const LastBatch last : {LastBatch::kPad, LastBatch::kDrop, LastBatch::kWrap}) {
    std::vector<std::string> positions;
    const auto steps_of = [&](uint64_t world, const std::string& start) {
      std::vector<Step> steps;
      for (uint64_t rank = 0; rank < world; ++rank) {
        LoaderOptions options = Options(1, uint64_t{4} << 20);
        options.world = world;
        options.rank = rank;
        options.last = last;
        options.epochs = 2;
        if (!start.empty()) options.start = *Position::Parse(start);
        const auto loader = Make(Rows(rows_of(world)), options);
        positions.clear();
        for (size_t step = 0; std::optional<Batch> batch = *loader->Next(); ++step) {
          positions.push_back(batch->position.ToString());
          if (step == steps.size()) steps.emplace_back();
          for (uint64_t row = 0; row < batch->size; ++row) {
            if (batch->Array<uint8_t>("valid")[row] == 0) continue;
            steps[step].insert(batch->shape << 32 | batch->Array<uint64_t>("row")[row]);
          }
        }
      }
      return steps;
    };
    const std::vector<Step> whole = steps_of(1, "");
    const std::vector<std::string> written = positions;
    ASSERT_GT(whole.size(), 20u);
    for (const uint64_t world : {2u, 3u, 6u}) {
      for (const size_t cut : {size_t{0}, size_t{3}, whole.size() / 2, whole.size() - 2}) {
        EXPECT_EQ(steps_of(world, written[cut]),
                  std::vector<Step>(whole.begin() + static_cast<std::ptrdiff_t>(cut) + 1, whole.end()))
            << world << " ranks after step " << cut;
        EXPECT_EQ(positions,
                  std::vector<std::string>(written.begin() + static_cast<std::ptrdiff_t>(cut) + 1, written.end()));
      }
    }
  }
}

TEST_F(RowLoaderTest, CanBeLeftAtAnyTime) {
  FillRandom(1000, 300);
  for (const TokenOptions& tokens : {Layout(RowLayout::kPack, 128), Buckets()}) {
    const Source source = Rows(tokens);
    for (int batches = 0; batches < 12; ++batches) {
      LoaderOptions options = Options(8, uint64_t{8} << 20);
      options.epochs = 0;
      const auto loader = Make(source, options);
      std::vector<Batch> held;
      for (int i = 0; i < batches; ++i) held.push_back(**loader->Next());
    }
  }
}

TEST_F(RowLoaderTest, ExplainsRows) {
  FillRandom(500, 200);
  const absl::StatusOr<LoaderExplanation> found = Explain(Rows(Buckets()), Options(1, uint64_t{8} << 20));
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->rows.size(), 3u);
  uint64_t tokens = 0;
  uint64_t places = 0;
  uint64_t steps = 0;
  for (const LoaderExplanation::Rows& rows : found->rows) {
    tokens += rows.counts.tokens;
    places += rows.counts.rows * rows.length;
    steps += rows.steps;
  }
  EXPECT_EQ(tokens, total_);
  EXPECT_DOUBLE_EQ(found->padding, 1 - double(tokens) / double(places));
  EXPECT_EQ(found->steps, steps);
  EXPECT_EQ(found->rank_samples, found->samples);
}

TEST_F(RowLoaderTest, MakingRowsCanBeStopped) {
  FillRandom(100, 50);
  std::stop_source stop;
  stop.request_stop();
  const absl::Status stopped =
      Source::OfRows(stores_, *dataset_, Layout(RowLayout::kPack, 64), {.stop = stop.get_token()}).status();
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_TRUE(Source::OfRows(stores_, *dataset_, Layout(RowLayout::kPack, 64)).ok());
}

TEST_F(RowLoaderTest, RefusesWhatItCannotDo) {
  Fill({0, 0});
  const Source nothing = Rows(Layout(RowLayout::kPack, 8));
  EXPECT_THAT(std::string(Loader::Check(nothing, Options(1, uint64_t{8} << 20)).message()),
              HasSubstr("without samples"));
  EXPECT_THAT(std::string(Loader::Check(Rows(Buckets()), Options(1, uint64_t{8} << 20)).message()),
              HasSubstr("no sample has tokens"));
}

}  // namespace
}  // namespace millrace
