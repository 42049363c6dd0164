#include "pipeline/loader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "decode/jpeg_encoder.h"
#include "pipeline/memory_shares.h"
#include "pipeline/sample_digest.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kSide = 24;

// GCC defines macros, and clang has features.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// Returns a JPEG of one colour gradient that depends on `seed`.
std::string Jpeg(uint64_t seed) {
  std::vector<uint8_t> rgb(kSide * kSide * 3);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<uint8_t>(seed * 7 + i / (1 + seed % 5));
  return *EncodeJpeg(rgb, kSide, kSide, 90);
}

// A data set of raw objects in memory, two classes, with helpers to read it.
class LoaderTest : public ::testing::Test {
 protected:
  LoaderTest() : runtime_({.io_threads = 1, .cpu_threads = 3}), stores_(runtime_) {}

  void Fill(uint64_t samples) {
    for (uint64_t i = 0; i < samples; ++i) {
      Put(fmt::format("{}/{:04}.jpg", i % 2 == 0 ? "cats" : "dogs", i), Jpeg(i));
    }
  }
  void Put(const std::string& key, const std::string& bytes) {
    const Location data = *stores_.Open("mem://data");
    ASSERT_TRUE(PutBlocking(*data.store, key, AsBytes(bytes)).ok());
  }
  void OpenDataset() {
    absl::StatusOr<std::unique_ptr<Dataset>> opened = Dataset::Open(runtime_, stores_, "mem://data");
    ASSERT_TRUE(opened.ok()) << opened.status();
    dataset_ = *std::move(opened);
  }

  LoaderOptions Options(uint64_t batch) {
    LoaderOptions options;
    options.image.height = options.image.width = kSide;
    options.batch = batch;
    options.shuffle = Shuffle::kGlobal;
    options.seed = 5;
    options.memory_bytes = uint64_t{16} << 20;
    options.digest = DigestOf::kRaw;
    return options;
  }
  std::unique_ptr<Loader> Make(const LoaderOptions& options) {
    absl::StatusOr<std::unique_ptr<Loader>> loader = Loader::Create(runtime_, *dataset_, options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    return *std::move(loader);
  }
  // Takes everything; batches are dropped at once.
  LoaderReport Drain(Loader& loader) {
    for (;;) {
      absl::StatusOr<std::optional<Batch>> batch = loader.Next();
      EXPECT_TRUE(batch.ok()) << batch.status();
      if (!batch.ok() || !*batch) return loader.report();
    }
  }

  // Computes the digest of an epoch by its definition, from the plan and the stored bytes.
  Uint128 EpochDigest(const OrderPolicy& policy, uint64_t seed, uint64_t epoch) {
    const Index& index = dataset_->index();
    const Plan plan(index.size(), policy, seed, epoch);
    Uint128 sum;
    SampleHasher hasher;
    for (uint64_t position = 0; position < plan.size(); ++position) {
      IndexedSample sample;
      IndexedObject object;
      EXPECT_TRUE(index.Lookup(plan.At(position), &sample).ok());
      EXPECT_TRUE(index.LookupObject(sample.object, &object).ok());
      const std::string bytes = *ReadAll(dataset_->store(), dataset_->StoreKey(object.key), 1 << 20);
      sum += *hasher.Hash(epoch, position, sample, AsBytes(bytes));
    }
    return sum;
  }

  Runtime runtime_;
  Stores stores_;
  std::unique_ptr<Dataset> dataset_;
};

TEST_F(LoaderTest, DeliversEachSampleOnceInPlanOrder) {
  Fill(50);
  OpenDataset();
  const auto loader = Make(Options(8));
  const Plan plan(50, loader->policy(), 5, 0);
  ImageDecoder decoder;
  uint64_t position = 0;
  while (true) {
    absl::StatusOr<std::optional<Batch>> next = loader->Next();
    ASSERT_TRUE(next.ok()) << next.status();
    if (!*next) break;
    const Batch& batch = **next;
    for (uint64_t row = 0; row < batch.valid; ++row, ++position) {
      const uint64_t sample = plan.At(position);
      EXPECT_EQ(batch.Array<uint64_t>("sample")[row], sample);
      EXPECT_EQ(batch.Array<uint8_t>("valid")[row], 1);
      IndexedSample entry;
      ASSERT_TRUE(dataset_->index().Lookup(sample, &entry).ok());
      EXPECT_EQ(batch.keys[row], entry.key);
      EXPECT_EQ(batch.Array<int64_t>("label")[row], entry.key.starts_with("cats/") ? 0 : 1);
      const uint64_t number = std::stoull(entry.key.substr(5));
      std::vector<std::byte> pixels(kSide * kSide * 3);
      ASSERT_TRUE(decoder.Decode(AsBytes(Jpeg(number)), Options(8).image, 0, pixels).ok());
      EXPECT_EQ(std::memcmp(pixels.data(), batch.Bytes("image").data() + row * pixels.size(), pixels.size()), 0);
    }
    for (uint64_t row = batch.valid; row < 8; ++row) {
      EXPECT_EQ(batch.Array<uint8_t>("valid")[row], 0);
      EXPECT_EQ(batch.Array<int64_t>("label")[row], -100);
      EXPECT_EQ(batch.keys[row], "");
    }
    EXPECT_EQ(batch.last_of_epoch, position == 50);
  }
  EXPECT_EQ(position, 50u);
  EXPECT_EQ(loader->report().digest, EpochDigest(loader->policy(), 5, 0));
}

TEST_F(LoaderTest, DigestsOfRanksAddUp) {
  Fill(61);
  OpenDataset();
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    LoaderOptions options = Options(4);
    options.shuffle = shuffle;
    options.epochs = 2;
    const auto whole = Make(options);
    Uint128 expected = EpochDigest(whole->policy(), 5, 0);
    expected += EpochDigest(whole->policy(), 5, 1);
    EXPECT_EQ(Drain(*whole).digest, expected);
    for (const LastBatch last : {LastBatch::kPad, LastBatch::kWrap, LastBatch::kShort}) {
      Uint128 sum;
      uint64_t samples = 0;
      options.last = last;
      options.world = 3;
      for (options.rank = 0; options.rank < 3; ++options.rank) {
        const LoaderReport report = Drain(*Make(options));
        sum += report.digest;
        samples += report.samples;
        EXPECT_EQ(report.position.ToString(), (Position{2, 0, report.position.fingerprint}).ToString());
      }
      EXPECT_EQ(samples, 122u);
      EXPECT_EQ(sum, expected);
    }
    options.rank = 0;
    options.world = 1;
    options.last = LastBatch::kPad;
  }
}

TEST_F(LoaderTest, DropLeavesTheShortBatchAndWrapFillsIt) {
  Fill(10);
  OpenDataset();
  LoaderOptions options = Options(4);
  options.last = LastBatch::kDrop;
  EXPECT_EQ(Drain(*Make(options)).samples, 8u);
  options.last = LastBatch::kWrap;
  const auto loader = Make(options);
  EXPECT_EQ(loader->steps_per_epoch(), 3u);
  const Plan plan(10, loader->policy(), 5, 0);
  std::optional<Batch> last;
  for (int i = 0; i < 3; ++i) last = *loader->Next();
  EXPECT_EQ(last->valid, 2u);
  const std::span<const uint64_t> samples = last->Array<uint64_t>("sample");
  EXPECT_EQ(std::vector<uint64_t>(samples.begin(), samples.end()),
            (std::vector<uint64_t>{plan.At(8), plan.At(9), plan.At(0), plan.At(1)}));
  EXPECT_EQ(last->Array<uint8_t>("valid")[3], 1);
  EXPECT_EQ(loader->report().samples, 10u);
}

// All ranks get equally many rows; those without a sample of their own repeat one of the epoch's first, as torch's
// DistributedSampler does, and are not valid. Positions and digests are those of a padded epoch.
TEST_F(LoaderTest, AShortLastBatchHasTheRowsThatHoldItsSamples) {
  Fill(10);
  OpenDataset();
  LoaderOptions options = Options(4);
  options.world = 3;
  std::vector<std::vector<uint64_t>> last_samples;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    for (const uint64_t consumed : {0, 5}) {
      options.last = LastBatch::kPad;
      const auto padded = Make(options);
      if (consumed > 0) options.start = Position{0, consumed, padded->report().position.fingerprint};
      const LoaderReport expected = Drain(*Make(options));
      options.last = LastBatch::kShort;
      const auto loader = Make(options);
      EXPECT_EQ(loader->shapes(), padded->shapes());
      const Plan plan(10, loader->policy(), 5, 0);
      const std::optional<Batch> batch = *loader->Next();
      ASSERT_TRUE(batch.has_value());
      const uint64_t rows = (10 - consumed + 2) / 3;
      EXPECT_EQ(batch->size, rows);
      EXPECT_EQ(batch->keys.size(), rows);
      const std::span<const uint64_t> samples = batch->Array<uint64_t>("sample");
      const std::span<const uint8_t> valid = batch->Array<uint8_t>("valid");
      ASSERT_EQ(samples.size(), rows);
      ASSERT_EQ(valid.size(), rows);
      EXPECT_EQ(batch->Bytes("image").size(),
                rows * loader->shapes().front().front().dims[1] * loader->shapes().front().front().dims[2] * 3);
      for (uint64_t row = 0; row < rows; ++row) {
        const uint64_t first = consumed + (options.rank + 3 - consumed % 3) % 3;
        const uint64_t position = first + row * 3;
        EXPECT_EQ(samples[row], plan.At(position % 10));
        EXPECT_EQ(valid[row], position < 10 ? 1 : 0);
        EXPECT_NE(batch->keys[row], "");
      }
      EXPECT_FALSE((*loader->Next()).has_value());
      EXPECT_EQ(loader->report().samples, expected.samples);
      EXPECT_EQ(loader->report().digest, expected.digest);
      EXPECT_EQ(loader->report().position.ToString(), expected.position.ToString());
      options.start.reset();
    }
  }
}

TEST_F(LoaderTest, FewerSamplesThanRanksGiveEachRankOneRow) {
  Fill(3);
  OpenDataset();
  LoaderOptions options = Options(4);
  options.world = 8;
  options.last = LastBatch::kShort;
  for (options.rank = 0; options.rank < 8; ++options.rank) {
    const auto loader = Make(options);
    const Plan plan(3, loader->policy(), 5, 0);
    const std::optional<Batch> batch = *loader->Next();
    EXPECT_EQ(batch->size, 1u);
    EXPECT_EQ(batch->Array<uint64_t>("sample")[0], plan.At(options.rank % 3));
    EXPECT_EQ(batch->valid, options.rank < 3 ? 1u : 0u);
  }
}

TEST_F(LoaderTest, DropLeavesTheShortBatchAlsoAfterAResumeWithALargerBatch) {
  Fill(10);
  OpenDataset();
  LoaderOptions options = Options(2);
  options.last = LastBatch::kDrop;
  const auto first = Make(options);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE((*first->Next()).has_value());
  options.start = first->report().position;
  options.batch = 8;
  const LoaderReport none = Drain(*Make(options));  // of 6 that are left
  EXPECT_EQ(none.samples, 0u);
  EXPECT_EQ(none.position.epoch, 1u);
  EXPECT_EQ(none.position.consumed, 0u);
  options.epochs = 2;
  EXPECT_EQ(Drain(*Make(options)).samples, 8u);
}

TEST_F(LoaderTest, ARankWithoutSamplesGetsPaddingForEver) {
  Fill(3);
  OpenDataset();
  LoaderOptions options = Options(4);
  options.epochs = 0;
  options.rank = 5;
  options.world = 8;
  const auto loader = Make(options);
  for (uint64_t epoch = 0; epoch < 5000; ++epoch) {
    const absl::StatusOr<std::optional<Batch>> batch = loader->Next();
    ASSERT_TRUE(batch.ok() && batch->has_value());
    ASSERT_EQ((*batch)->valid, 0u);
    ASSERT_EQ((*batch)->epoch, epoch);
  }
}

TEST_F(LoaderTest, ResumesExactlyAtEveryBatch) {
  Fill(23);
  OpenDataset();
  LoaderOptions options = Options(5);
  options.epochs = 2;
  const Uint128 whole = Drain(*Make(options)).digest;
  for (int stop = 0; stop <= 10; ++stop) {
    const auto first = Make(options);
    for (int i = 0; i < stop; ++i) ASSERT_TRUE((*first->Next()).has_value());
    Uint128 sum = first->report().digest;
    LoaderOptions rest = options;
    rest.start = *Position::Parse(first->report().position.ToString());
    rest.world = 1;
    rest.batch = 3 + stop % 4;  // another batch size than before
    sum += Drain(*Make(rest)).digest;
    EXPECT_EQ(sum, whole) << stop;
  }
}

TEST_F(LoaderTest, ABatchStaysAsLongAsItIsHeldAndTooManyAreRefused) {
  Fill(60);
  OpenDataset();
  LoaderOptions options = Options(2);
  options.image.height = options.image.width = 128;
  options.memory_bytes = uint64_t{3} << 20;  // a quarter of it holds 7 batches of 30
  std::vector<Batch> held;
  {
    const auto loader = Make(options);
    absl::Status refused;
    while (refused.ok()) {
      absl::StatusOr<std::optional<Batch>> batch = loader->Next();
      if (batch.ok()) {
        ASSERT_TRUE(batch->has_value()) << "all were delivered: nothing bounds what is held";
        held.push_back(**std::move(batch));
      } else {
        refused = batch.status();
      }
    }
    EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("release some"));
    std::set<const std::byte*> memory;
    for (const Batch& batch : held) EXPECT_TRUE(memory.insert(batch.Bytes("image").data()).second);
    EXPECT_TRUE(loader->WaitReady(std::chrono::hours(1)));  // with that refusal
    held.pop_back();                                        // one is released before Next is called, and all continues
    EXPECT_TRUE(loader->Next().ok());
  }
  const Plan plan(60, OrderPolicy::ForSamples(Shuffle::kGlobal, 1, true), 5, 0);
  EXPECT_EQ(held[0].Array<uint64_t>("sample")[0], plan.At(0));  // the loader is gone, the batch is not
}

TEST_F(LoaderTest, ADamagedSampleFailsWithItsName) {
  Fill(12);
  Put("cats/0006.jpg", Jpeg(6).substr(0, 200));
  OpenDataset();
  const auto loader = Make(Options(4));
  absl::Status failed;
  while (failed.ok()) failed = loader->Next().status();
  EXPECT_TRUE(absl::IsDataLoss(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("mem://data/cats/0006.jpg, sample 'cats/0006'"));
  EXPECT_EQ(loader->Next().status(), failed);  // final
}

TEST_F(LoaderTest, BytesThatAreNotThoseOfTheIndexFailWithTheNameOfTheSample) {
  Fill(12);
  OpenDataset();
  std::string other = Jpeg(6);
  other[300] = static_cast<char>(other[300] ^ 1);
  Put("cats/0006.jpg", other);
  const auto loader = Make(Options(4));
  absl::Status failed;
  while (failed.ok()) failed = loader->Next().status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("cats/0006"));
}

TEST_F(LoaderTest, ADamagedSampleIsReplacedTheSameWayEveryTime) {
  Fill(12);
  Put("cats/0006.jpg", "not a picture at all");
  OpenDataset();
  LoaderOptions options = Options(4);
  options.bad_samples = BadSamples::kReplace;
  const LoaderReport first = Drain(*Make(options));
  EXPECT_EQ(first.samples, 12u);
  ASSERT_EQ(first.quarantined, 1u);
  EXPECT_THAT(first.quarantine[0].uri, HasSubstr("cats/0006"));
  EXPECT_THAT(first.quarantine[0].reason, StartsWith("field 'jpg': "));  // without the name once more
  options.batch = 5;
  const LoaderReport second = Drain(*Make(options));
  EXPECT_EQ(second.digest, first.digest);
  EXPECT_EQ(second.quarantine[0].replacement, first.quarantine[0].replacement);
}

TEST_F(LoaderTest, ADamagedSampleMayBeMasked) {
  Fill(12);
  Put("cats/0006.jpg", "not a picture at all");
  OpenDataset();
  LoaderOptions options = Options(4);
  options.bad_samples = BadSamples::kMask;
  options.shuffle = Shuffle::kNone;
  const auto loader = Make(options);
  std::vector<std::string> keys;
  while (true) {
    const std::optional<Batch> batch = *loader->Next();
    if (!batch) break;
    EXPECT_EQ(batch->valid, 4u) << "steps are as without damage";
    for (uint64_t row = 0; row < 4; ++row) {
      const bool valid = batch->Array<uint8_t>("valid")[row] != 0;
      EXPECT_EQ(valid, !batch->keys[row].empty());
      if (valid) {
        keys.push_back(batch->keys[row]);
        continue;
      }
      EXPECT_EQ(batch->Array<int64_t>("label")[row], -100);
      const ByteSpan image = batch->Bytes("image");
      const ByteSpan of_row = image.subspan(row * image.size() / 4, image.size() / 4);
      EXPECT_TRUE(std::all_of(of_row.begin(), of_row.end(), [](std::byte b) { return b == std::byte{0}; }));
    }
  }
  EXPECT_EQ(keys.size(), 11u);
  const LoaderReport report = loader->report();
  EXPECT_EQ(report.quarantined, 1u);
  EXPECT_THAT(report.quarantine[0].uri, HasSubstr("cats/0006"));
  EXPECT_EQ(report.quarantine[0].replacement, "");
  options.batch = 6;
  EXPECT_EQ(Drain(*Make(options)).digest, report.digest);
}

TEST_F(LoaderTest, OnlyDeliveredSamplesAreReportedInOrder) {
  Fill(40);
  const std::vector<std::string> bad = {"cats/0006", "cats/0010", "dogs/0007", "dogs/0011", "dogs/0031"};
  for (const std::string& key : bad) Put(key + ".jpg", "not a picture at all");
  OpenDataset();
  LoaderOptions options = Options(8);
  options.bad_samples = BadSamples::kReplace;
  options.shuffle = Shuffle::kNone;  // cats, then dogs
  const auto loader = Make(options);
  std::vector<uint64_t> counts;
  ::testing::internal::CaptureStderr();
  while ((*loader->Next()).has_value()) counts.push_back(loader->report().quarantined);
  const std::string logged = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(counts, (std::vector<uint64_t>{2, 2, 3, 4, 5}));
  const LoaderReport report = loader->report();
  ASSERT_EQ(report.quarantine.size(), bad.size());
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(report.quarantine[i].uri, fmt::format("mem://data/{}.jpg, sample '{}'", bad[i], bad[i]));
  }
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged;
  EXPECT_THAT(logged, HasSubstr("sample 'cats/0006': field 'jpg': "));
  EXPECT_THAT(logged, HasSubstr(fmt::format("; '{}' takes its place", report.quarantine[0].replacement)));
}

TEST_F(LoaderTest, ABudgetThatIsTooSmallNamesOneThatWouldDo) {
  Fill(40);
  OpenDataset();
  LoaderOptions options = Options(512);
  options.memory_bytes = 1 << 20;
  const absl::Status refused = Loader::Create(runtime_, *dataset_, options).status();
  ASSERT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  const std::string message(refused.message());
  const size_t end = message.find(" MiB would do");
  ASSERT_NE(end, std::string::npos) << message;
  const size_t begin = message.rfind(' ', end - 1) + 1;
  options.memory_bytes = std::stoull(message.substr(begin, end - begin)) << 20;
  EXPECT_EQ(Drain(*Make(options)).samples, 40u);
}

TEST_F(LoaderTest, ABudgetBeyondTheAddressSpaceIsRefusedInWords) {
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{1} << 60});
  Fill(4);
  OpenDataset();
  LoaderOptions options = Options(2);
  options.memory_bytes = uint64_t{1} << 60;
  options.mix = MixOptions{.length = uint64_t{1} << 50};  // an epoch that needs it
  const absl::Status refused = Loader::Create(runtime, *dataset_, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

TEST_F(LoaderTest, ASmallDataSetTakesLittleOfALargeBudget) {
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{1} << 40});
  Fill(40);
  OpenDataset();
  LoaderOptions options = Options(4);
  options.epochs = 3;
  const LoaderReport little = Drain(*Make(options));
  options.memory_bytes = uint64_t{1} << 40;
  const auto loader = Loader::Create(runtime, *dataset_, options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  const uint64_t batches = uint64_t{1} << 38;  // a quarter may be kept by the program
  EXPECT_LT(runtime.memory().used(), batches + (uint64_t{64} << 20));
  EXPECT_EQ(Drain(**loader).digest, little.digest);
  const MemoryReport memory = (*loader)->report().memory;
  EXPECT_EQ(memory.budget_bytes, uint64_t{1} << 40);
  EXPECT_EQ(memory.loaders, 1u);
  EXPECT_GT(memory.item_bytes, 0u);
  EXPECT_LT(memory.item_bytes, uint64_t{16} << 20);
  EXPECT_GT(memory.batch_bytes, 0u);
  EXPECT_EQ(memory.kept_bytes, 0u);
}

TEST_F(LoaderTest, LoadersWithoutABudgetShareOneAndDeliverTheSame) {
  Fill(60);
  OpenDataset();
  LoaderOptions options = Options(4);
  options.epochs = 2;
  const LoaderReport alone = Drain(*Make(options));
  MemoryShares shares(runtime_.memory(), uint64_t{48} << 20);
  options.shares = &shares;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int i = 0; i < 3; ++i) loaders.push_back(Make(options));
  ASSERT_TRUE(loaders.front()->Next().ok());
  EXPECT_EQ(loaders.front()->report().memory.loaders, 3u);
  EXPECT_EQ(loaders.front()->report().memory.budget_bytes, uint64_t{48} << 20);
  EXPECT_EQ(Drain(*loaders.back()).digest, alone.digest);
  loaders.pop_back();
  EXPECT_EQ(Drain(*loaders.back()).digest, alone.digest);
}

TEST_F(LoaderTest, ABatchThatTheSystemHasNoMemoryForEndsTheLoaderInWords) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers' allocators end the program instead of refusing";
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{1} << 60});
  Fill(4);
  OpenDataset();
  LoaderOptions options = Options(uint64_t{1} << 16);
  options.image.height = options.image.width = 16384;
  options.image.dtype = DType::kF32;
  const uint64_t batch = options.batch * options.image.bytes();  // more than any address space
  options.memory_bytes = 2 * batch + (uint64_t{64} << 20);
  const auto loader = Loader::Create(runtime, *dataset_, options);
  ASSERT_TRUE(loader.ok()) << loader.status();
  const absl::Status refused = (*loader)->Next().status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the system refuses memory"));
}

// The same objects in memory and as files give the same epoch; tests/e2e compares files with S3.
TEST_F(LoaderTest, DigestsDoNotDependOnTheStore) {
  Fill(60);
  OpenDataset();
  const std::filesystem::path folder = ::testing::TempDir() + "/loader-files-" + std::to_string(getpid());
  for (uint64_t i = 0; i < dataset_->index().objects(); ++i) {
    IndexedObject object;
    ASSERT_TRUE(dataset_->index().LookupObject(static_cast<uint32_t>(i), &object).ok());
    std::filesystem::create_directories((folder / object.key).parent_path());
    std::ofstream(folder / object.key) << *ReadAll(dataset_->store(), object.key, 1 << 20);
  }
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kGlobal, Shuffle::kWindow}) {
    LoaderOptions options = Options(7);
    options.shuffle = shuffle;
    const absl::StatusOr<std::unique_ptr<Dataset>> files = Dataset::Open(runtime_, stores_, folder.string());
    ASSERT_TRUE(files.ok()) << files.status();
    const auto loader = Loader::Create(runtime_, **files, options);
    ASSERT_TRUE(loader.ok()) << loader.status();
    EXPECT_EQ(Drain(**loader).digest, Drain(*Make(options)).digest);
  }
  std::filesystem::remove_all(folder);
}

TEST_F(LoaderTest, LoadersShareTheProcessBudget) {
  Fill(4);
  OpenDataset();
  LoaderOptions options = Options(2);
  options.memory_bytes = runtime_.memory().limit() / 2 + 1;
  options.mix = MixOptions{.length = uint64_t{1} << 40};  // an epoch that needs it
  const auto first = Make(options);
  const absl::Status refused = Loader::Create(runtime_, *dataset_, options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

TEST_F(LoaderTest, PositionsOfOtherOrdersAreRefused) {
  Fill(8);
  OpenDataset();
  LoaderOptions options = Options(2);
  const auto loader = Make(options);
  ASSERT_TRUE(loader->Next().ok());
  options.start = loader->report().position;
  options.seed = 6;
  EXPECT_TRUE(absl::IsFailedPrecondition(Loader::Create(runtime_, *dataset_, options).status()));
  options.seed = 5;
  options.shuffle = Shuffle::kNone;
  EXPECT_TRUE(absl::IsFailedPrecondition(Loader::Create(runtime_, *dataset_, options).status()));
  options.shuffle = Shuffle::kGlobal;
  EXPECT_TRUE(Loader::Create(runtime_, *dataset_, options).ok());
}

TEST_F(LoaderTest, MayDieAtAnyMoment) {
  Fill(40);
  OpenDataset();
  for (int batches = 0; batches < 12; ++batches) {
    const auto loader = Make(Options(3));
    for (int i = 0; i < batches; ++i) ASSERT_TRUE(loader->Next().ok());
  }
}

TEST_F(LoaderTest, OptionsThatMakeNoSenseAreRefusedInWords) {
  Fill(6);
  OpenDataset();
  const auto refusal = [&](auto change) {
    LoaderOptions options = Options(2);
    change(options);
    const absl::Status status = Loader::Create(runtime_, *dataset_, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](LoaderOptions& o) { o.batch = 0; }), HasSubstr("batch"));
  EXPECT_THAT(refusal([](LoaderOptions& o) { o.rank = 1; }), HasSubstr("rank"));
  EXPECT_THAT(refusal([](LoaderOptions& o) { o.image_field = "png"; }), HasSubstr("its fields are: cls, jpg"));
  EXPECT_THAT(refusal([](LoaderOptions& o) { o.label = LabelOptions{"txt", {}}; }), HasSubstr("'txt'"));
  EXPECT_THAT(refusal([](LoaderOptions& o) {
                o.last = LastBatch::kDrop;
                o.batch = 7;
              }),
              HasSubstr("7"));
}

}  // namespace
}  // namespace millrace
