#include "pipeline/fetch_run.h"

#include <gtest/gtest.h>

#include "dataset/index_writer.h"
#include "net/runtime.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

struct At {
  uint64_t offset;
  uint64_t length;
};

// An index of objects "0", "1", ... with one field a sample.
std::unique_ptr<Index> MakeIndex(const std::vector<std::vector<At>>& objects) {
  Runtime runtime({.io_threads = 1, .cpu_threads = 1});
  Stores stores(runtime);
  ObjectStore& store = *stores.Open("mem://index")->store;
  IndexWriter writer(DataKind::kTar, *store.Write("index", {}));
  uint64_t number = 0;
  for (size_t object = 0; object < objects.size(); ++object) {
    for (const At& at : objects[object]) {
      const std::string key = std::to_string(number++);
      const NewSampleField field{"bin", at.offset, at.length};
      EXPECT_TRUE(writer.AddSample({.key = key, .fields = {&field, 1}, .crc32c = 7, .label = ""}).ok());
    }
    EXPECT_TRUE(writer.AddObject({std::to_string(object), uint64_t{1} << 40, "etag"}).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return *Index::FromBytes(*ReadAll(store, "index", uint64_t{1} << 30));
}

std::vector<uint64_t> Samples(const FetchRun& run) {
  std::vector<uint64_t> samples;
  for (const FetchRun::Part& part : run.parts) samples.push_back(part.rank);
  return samples;
}

const auto kAll = [](uint64_t) { return true; };

TEST(RunAround, TakesTheWholeExtentInOrderOfOffset) {
  const auto index = MakeIndex({{{512, 100}, {1024, 100}, {2048, 100}, {3072, 100}, {4096, 100}, {5120, 100}}});
  const FetchRun run = *RunAround(*index, nullptr, 3, 4, 1 << 20, kAll);
  EXPECT_EQ(Samples(run), (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_EQ(run.range(), (ByteRange{3072, 2148}));
}

// As sequences without tokens: they lie where others begin and end.
TEST(RunAround, SamplesWithoutBytes) {
  const auto index = MakeIndex({{{512, 512}, {1024, 0}, {1024, 512}, {1536, 0}, {1536, 0}}});
  const FetchRun run = *RunAround(*index, nullptr, 16, 2, 1 << 20, kAll);
  EXPECT_EQ(run.parts[1].span, (ByteRange{1024, 0}));
  EXPECT_EQ(run.parts[2].span, (ByteRange{1024, 512}));
  EXPECT_EQ(run.range(), (ByteRange{512, 1024}));
  const auto without_bytes = [](uint64_t sample) { return sample > 2; };
  EXPECT_EQ(RunAround(*index, nullptr, 16, 3, 1 << 20, without_bytes)->range(), (ByteRange{1536, 0}));
}

TEST(RunAround, StopsAtObjectsGapsAndTheBound) {
  const auto index = MakeIndex({{{512, 100}, {1024, 100}}, {{512, 100}, {100352, 100}, {100864, 100}, {101376, 5000}}});
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 1, 1 << 20, kAll)), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 2, 1 << 20, kAll)), (std::vector<uint64_t>{2}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 4, 1000, kAll)), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 5, 1, kAll)), (std::vector<uint64_t>{5}));  // itself always
}

TEST(RunAround, SkipsWhatNobodyWantsWhenItIsSmall) {
  const auto index = MakeIndex({{{512, 1000}, {1536, 1000}, {2560, 1000}, {3584, 9000}, {12800, 10}}});
  const auto even = [](uint64_t sample) { return sample % 2 == 0; };
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 0, 1 << 20, even)), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 4, 1 << 20, even)), (std::vector<uint64_t>{4}));
}

TEST(RunAround, ExtentsOfASubsetAreItsOwn) {
  const auto index = MakeIndex({{{512, 100}, {1024, 100}, {2048, 100}, {3072, 100}, {4096, 100}, {5120, 100}}});
  Selection::Builder builder(6);
  for (const uint64_t sample : {0u, 2u, 3u, 5u}) builder.Add(sample);
  const Selection selection = std::move(builder).Finish();
  const FetchRun run = *RunAround(*index, &selection, 2, 2, 1 << 20, kAll);
  EXPECT_EQ(Samples(run), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(run.range(), (ByteRange{3072, 2148}));
  EXPECT_EQ(Samples(*RunAround(*index, &selection, 16, 1, 1 << 20, kAll)), (std::vector<uint64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace millrace
