#include "inspect/decode_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "decode/image.h"
#include "decode/jpeg_encoder.h"
#include "inspect/preview.h"
#include "inspect/read_samples.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Jpeg(int width, int height, uint8_t grey) {
  const std::vector<uint8_t> rgb(static_cast<size_t>(width) * static_cast<size_t>(height) * 3, grey);
  absl::StatusOr<std::string> jpeg = EncodeJpeg(rgb, width, height, 90);
  EXPECT_TRUE(jpeg.ok()) << jpeg.status();
  return jpeg.ok() ? *std::move(jpeg) : "";
}

// Data sets in memory, of which there is enough for several threads.
class ReadingTest : public ::testing::Test {
 protected:
  void Put(const std::string& key, std::string_view bytes) {
    const auto location = stores_.Open("mem://s/d");
    const auto put = PutBlocking(*location->store, location->Key(key), AsBytes(bytes));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  std::unique_ptr<Dataset> Open() {
    auto dataset = Dataset::Open(runtime_, stores_, "mem://s/d");
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }

  Runtime runtime_{{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  Stores stores_{runtime_};
};

TEST_F(ReadingTest, EverySampleComesOnceAndInOrder) {
  for (int i = 0; i < 100; ++i) Put(fmt::format("c/{:03}.bin", i), std::string(i == 50 ? 900'000 : i * 37, 'a'));
  const auto dataset = Open();
  for (const uint64_t count : {1, 7, 100}) {
    const SampleOrder order = SampleOrder::Spread(100, count);
    std::vector<std::string> keys;
    MemoryBudget memory(4 << 20);
    const absl::Status status = ReadSamples(*dataset, order, {.begin = 0, .end = count}, memory, {},
                                            [&](const IndexedSample& sample, const absl::StatusOr<ByteSpan>& bytes) {
                                              ASSERT_TRUE(bytes.ok()) << bytes.status();
                                              EXPECT_EQ(bytes->size(), sample.span.length);
                                              keys.push_back(sample.key);
                                            });
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(keys.size(), count);
    for (uint64_t p = 0; p < count; ++p) EXPECT_EQ(keys[p], fmt::format("c/{:03}", order.At(p)));
  }
}

TEST_F(ReadingTest, WhatDoesNotFitIsSaid) {
  Put("c/0.bin", std::string(900'000, 'a'));
  Put("c/1.bin", "b");
  const auto dataset = Open();
  MemoryBudget memory(1 << 20);
  std::vector<absl::StatusCode> codes;
  const absl::Status status = ReadSamples(
      *dataset, SampleOrder(2), {.begin = 0, .end = 2}, memory, {},
      [&](const IndexedSample&, const absl::StatusOr<ByteSpan>& bytes) { codes.push_back(bytes.status().code()); });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kResourceExhausted, absl::StatusCode::kOk));
  EXPECT_EQ(memory.used(), 0u);
}

TEST_F(ReadingTest, CountsWhatCannotBeDecoded) {
  const std::string sound = Jpeg(64, 48, 128);
  for (int i = 0; i < 100; ++i) {
    const bool bad = i % 10 == 3;
    Put(fmt::format("c/{:03}.jpg", i), bad ? std::string_view(sound).substr(0, sound.size() / 2) : sound);
  }
  Put("c/100.jpg", "");
  Put("c/101.json", "{}");  // has no image
  const auto dataset = Open();
  std::atomic<uint64_t> calls{0};
  const auto report = CheckDecoding(runtime_, *dataset, 102, {.progress = [&](uint64_t, uint64_t) { ++calls; }});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 102u);
  EXPECT_EQ(report->images, 90u);
  EXPECT_EQ(report->failed, 11u);
  EXPECT_EQ(calls, 102u);
  std::vector<std::string> keys;
  for (const BadSample& bad : report->first) keys.push_back(bad.place.key);
  EXPECT_THAT(keys, ElementsAre("c/003", "c/013", "c/023", "c/033", "c/043"));
  EXPECT_THAT(report->first[0].why, HasSubstr("field 'jpg'"));
  EXPECT_EQ(report->first[1].place.number, 13u);

  const auto few = CheckDecoding(runtime_, *dataset, 3, {});
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->samples, 3u);
  EXPECT_EQ(runtime_.memory().used(), 0u);
}

TEST_F(ReadingTest, TextsJsonAndArraysAreJudgedByTheirNames) {
  const std::vector<std::pair<std::string, std::string>> files{
      {"0.txt", "gr\xc3\xbc\xc3\x9f"}, {"1.txt", "gr\xfc\xdf"},
      {"2.caption.txt", "\xff"},       {"3.json", R"({"a": [1, NaN]})"},
      {"4.json", R"({"a": [1, )"},     {"5.npy", "no array"},
      {"6.bin", "\xff\xfe"},           {"7.txt", ""},
      {"8.meta.json", "{'a': 1}"}};
  for (const auto& [name, bytes] : files) Put("c/" + name, bytes);
  const auto dataset = Open();
  const auto report = CheckDecoding(runtime_, *dataset, files.size(), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->failed, 5u);
  std::vector<std::string> found;
  for (const BadSample& bad : report->first) found.push_back(fmt::format("{}: {}", bad.place.key, bad.why));
  EXPECT_THAT(found, ElementsAre(HasSubstr("c/1: field 'txt': the text \"gr??\" is not UTF-8 at byte 2"),
                                 HasSubstr("c/2.caption: field 'txt'"), HasSubstr("c/4: field 'json'"),
                                 HasSubstr("c/5: field 'npy'"), HasSubstr("c/8.meta: field 'json'")));
}

// The memory that a sample has to itself does not depend on the number of cores, and a large sample is not a fault of
// the data.
TEST_F(ReadingTest, LargeSamplesAreDecodedAllTheSame) {
  for (int i = 0; i < 64; ++i) Put(fmt::format("c/{:03}.bin", i), "small");
  Put("c/100.bin", std::string(15 << 20, 'a'));
  Put("c/101.bin", std::string(17 << 20, 'a'));  // above a quarter of 64 MiB
  const auto dataset = Open();
  const auto report = CheckDecoding(runtime_, *dataset, 66, {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->samples, 66u);
  EXPECT_EQ(report->failed, 0u);
  EXPECT_EQ(report->too_large, 1u);
}

TEST_F(ReadingTest, StopsWhenAsked) {
  Put("c/0.jpg", Jpeg(8, 8, 1));
  const auto dataset = Open();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(CheckDecoding(runtime_, *dataset, 1, {.stop = stop.get_token()}).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ReadingTest, AnObjectThatIsGoneEndsIt) {
  Put("c/0.jpg", Jpeg(8, 8, 1));
  const auto dataset = Open();
  const auto location = stores_.Open("mem://s/d");
  ASSERT_TRUE(DeleteBlocking(*location->store, location->Key("c/0.jpg")).ok());
  EXPECT_EQ(CheckDecoding(runtime_, *dataset, 1, {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ReadingTest, PreviewShowsPicturesTextsAndProblems) {
  Put("cat/0.jpg", Jpeg(320, 80, 200));
  Put("cat/1.jpg", Jpeg(10, 20, 100));
  Put("dog/2.jpg", "no picture");
  Put("dog/3.txt", "a caption");
  const auto dataset = Open();
  const auto preview = MakePreview(*dataset, 24, runtime_.memory(), {});
  ASSERT_TRUE(preview.ok()) << preview.status();
  ASSERT_EQ(preview->samples.size(), 4u);
  EXPECT_EQ(preview->samples[0].label, "cat");
  EXPECT_EQ(preview->samples[3].label, "dog");
  EXPECT_EQ(preview->samples[1].place.key, "cat/1");
  EXPECT_THAT(preview->samples[2].problem, HasSubstr("JPEG"));
  EXPECT_EQ(preview->samples[3].problem, "");
  const std::vector<SheetPlace>& places = preview->sheet.places;
  EXPECT_EQ(places[0].width, 160);
  EXPECT_EQ(places[0].height, 40) << "all of it, in its proportions";
  EXPECT_EQ(places[1].width, 80) << "small ones grow";
  EXPECT_EQ(places[1].height, 160);
  EXPECT_EQ(preview->sheet.png, MakePreview(*dataset, 24, runtime_.memory(), {})->sheet.png);
}

}  // namespace
}  // namespace millrace
