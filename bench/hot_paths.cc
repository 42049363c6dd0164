// This program runs one path of a sample, request or batch, for a program that counts instructions (instructions.py).
// The cost of an item is the difference of two runs over the difference of their items, so that starting and preparing
// do not count. There are no threads, no I/O and no clock: two runs of a build execute the same instructions.
//
//   hot_paths              lists the cases
//   hot_paths CASE ITEMS   goes this path ITEMS times

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/crypto.h"
#include "base/rng.h"
#include "dataset/index_writer.h"
#include "dataset/string_writer.h"
#include "plan/plan.h"
#include "s3/get_exchange.h"
#include "s3/testing/exchange_driver.h"
#include "s3/xml.h"
#include "service/frame.h"
#include "shard/tar_format.h"
#include "shard/tar_samples.h"
#include "shard/tar_writer.h"

namespace millrace {
namespace {

/// Keeps the compiler from leaving out what is measured.
volatile uint64_t sink;

[[noreturn]] void Die(const absl::Status& status) {
  fmt::print(stderr, "hot_paths: {}\n", ToStd(status.message()));
  std::exit(1);
}

void Must(const absl::Status& status) {
  if (!status.ok()) Die(status);
}

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) Die(result.status());
  return *std::move(result);
}

// ---- The order

constexpr uint64_t kPlanned = 1'000'000'000;

Plan MakePlan(Shuffle shuffle) {
  return Plan(kPlanned, {.shuffle = shuffle, .extent = 16, .window = 192, .lanes = 64}, 42, 0);
}

template <Shuffle shuffle>
void StreamOrder(uint64_t items) {
  const Plan plan = MakePlan(shuffle);
  Plan::Cursor cursor(plan, 0);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < items; ++i) sum += cursor.Next();
  sink = sum;
}

void FindPositions(uint64_t items) {
  const Plan plan = MakePlan(Shuffle::kWindow);
  uint64_t item = 0;
  for (uint64_t i = 0; i < items; ++i) item = Mix64(plan.PositionOf(item) + i) % kPlanned;
  sink = item;
}

// ---- The index

constexpr uint64_t kIndexed = 4000;
constexpr uint64_t kShardSamples = 2000;

/// Shards of photographs with classes.
std::string WriteIndex(uint64_t samples) {
  std::string bytes;
  Rng rng(1);
  IndexWriter writer(DataKind::kTar, std::make_unique<StringWriter>(&bytes));
  uint64_t offset = 0;
  for (uint64_t i = 0; i < samples; ++i) {
    const std::string key = fmt::format("{:09}", i);
    const std::string label = fmt::format("{}", rng.Below(1000));
    const uint64_t jpeg = 60'000 + rng.Below(110'000);
    const NewSampleField fields[] = {
        {.name = "jpg", .offset = offset + 512, .length = jpeg},
        {.name = "cls", .offset = offset + 1024 + TarPadded(jpeg), .length = label.size()}};
    const auto crc = static_cast<uint32_t>(rng.Next());
    Must(writer.AddSample({.key = key, .fields = fields, .crc32c = crc, .label = label}));
    offset = fields[1].offset + 512;
    if ((i + 1) % kShardSamples != 0 && i + 1 < samples) continue;
    Must(writer.AddObject(
        {.key = fmt::format("shard-{:06}.tar", i / kShardSamples), .size = offset + 1024, .etag = "0123456789abcdef"}));
    offset = 0;
  }
  Must(writer.Finish());
  return bytes;
}

void WriteIndexOnce(uint64_t items) {
  sink = WriteIndex(items).size();
}

void LookUp(uint64_t items) {
  const std::unique_ptr<Index> index = Must(Index::FromBytes(WriteIndex(kIndexed)));
  IndexedSample sample;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < items; ++i) {
    Must(index->Lookup(i % kIndexed, &sample));
    sum += sample.crc32c.value_or(0);
  }
  sink = sum;
}

void ScanIndex(uint64_t items) {
  const std::unique_ptr<Index> index = Must(Index::FromBytes(WriteIndex(kIndexed)));
  uint64_t sum = 0;
  for (uint64_t done = 0; done < items; done += kIndexed) {
    Must(index->Scan(0, std::min(kIndexed, items - done),
                     [&](uint64_t, const IndexedSample& sample) { sum += sample.crc32c.value_or(0); }));
  }
  sink = sum;
}

// ---- A shard

/// Scans shards of tar with samples of 4 KB.
void ScanShards(uint64_t items) {
  constexpr uint64_t kSamples = 64;
  constexpr size_t kChunk = 64 << 10;
  std::string shard;
  const auto add = [&](const std::string& name, const std::string& data) {
    Must(AppendTarHeader(shard, name, data.size()));
    shard += data;
    AppendTarPadding(shard, data.size());
  };
  for (uint64_t i = 0; i < kSamples; ++i) {
    add(fmt::format("{:08}.cls", i), std::to_string(i % 10));
    add(fmt::format("{:08}.jpg", i), std::string(4000, static_cast<char>('a' + i % 26)));
  }
  AppendTarEnd(shard);
  uint64_t found = 0;
  const auto count = [&](const ShardSample& sample) {
    found += sample.fields.size();
    return absl::OkStatus();
  };
  for (uint64_t done = 0; done < items; done += kSamples) {
    TarSampleScanner scanner;
    for (size_t at = 0; at < shard.size(); at += kChunk) {
      Must(scanner.Feed(AsBytes(std::string_view(shard).substr(at, kChunk)), count));
    }
    Must(scanner.Finish(count));
  }
  sink = found;
}

// ---- Requests

/// Makes GETs of 64 KiB with a checksum, from a store that is a function: what a request costs without the network.
void Get(uint64_t items) {
  constexpr uint64_t kBytes = 64 << 10;
  const std::string body(kBytes, 'x');
  std::string buffer(kBytes, '\0');
  const uint32_t crc = Crc32c(AsBytes(body));
  S3Context context(TestS3Config(), 7);
  for (uint64_t i = 0; i < items; ++i) {
    ExchangeDriver driver([&](const HttpRequest&) {
      ScriptedAnswer answer{.status = 206, .headers = {}, .body = body};
      answer.headers.Add("ETag", "\"0123456789abcdef\"");
      answer.headers.Add("Content-Range", fmt::format("bytes 0-{}/{}", kBytes - 1, 10 * kBytes));
      return answer;
    });
    GetExchange exchange(context, "bucket", "train/shard-000000.tar", AsWritableBytes(buffer),
                         {.range = {0, kBytes}, .checksums = {{.range = {0, kBytes}, .crc32c = crc}}},
                         [](absl::StatusOr<GetResult> result) { Must(result.status()); });
    driver.Run(exchange);
  }
  sink = context.counters.bytes_read;
}

/// Reads objects of pages of a listing.
void ReadListing(uint64_t items) {
  constexpr uint64_t kPage = 1000;
  XmlWriter page("ListBucketResult");
  page.Element("Name", "bucket");
  page.Element("EncodingType", "url");
  page.Element("IsTruncated", "false");
  for (uint64_t i = 0; i < kPage; ++i) {
    page.Open("Contents");
    page.Element("Key", fmt::format("train/class-{:03}/{:08}.jpg", i / 100, i));
    page.Element("LastModified", "2026-01-01T12:00:00.000Z");
    page.Element("ETag", "\"0123456789abcdef0123456789abcdef\"");
    page.Element("Size", 115'000 + i);
    page.Close();
  }
  const std::string xml = std::move(page).Finish();
  uint64_t sum = 0;
  for (uint64_t done = 0; done < items; done += kPage) sum += Must(ParseListXml(xml)).objects.size();
  sink = sum;
}

// ---- The data service

/// A batch as a worker sends it and a trainer takes it: head, facts, checksums; without the socket.
void Deliver(uint64_t items) {
  constexpr uint64_t kRows = 64;
  std::string pixels(kRows * 64 * 64 * 3, 'p');
  std::string labels(kRows * sizeof(int64_t), '\1');
  std::string valid(kRows, '\1');
  Batch batch;
  batch.size = batch.valid = kRows;
  for (uint64_t row = 0; row < kRows; ++row) batch.keys.push_back(fmt::format("class-{:03}/{:08}", row % 10, row));
  batch.arrays = {
      {"image", AsWritableBytes(pixels)}, {"label", AsWritableBytes(labels)}, {"valid", AsWritableBytes(valid)}};
  uint64_t rows = 0;
  for (uint64_t i = 0; i < items; ++i) {
    std::string frame = EncodeFrame(i, batch, ContentsCrc(batch));
    frame.reserve(frame.size() + pixels.size() + labels.size() + valid.size());
    frame.append(pixels).append(labels).append(valid);
    rows += Must(ParseFrame(AsBytes(frame))).facts.size;
  }
  sink = rows;
}

using Case = void (*)(uint64_t items);

const std::map<std::string_view, Case> kCases = {
    {"plan-global", StreamOrder<Shuffle::kGlobal>},
    {"plan-window", StreamOrder<Shuffle::kWindow>},
    {"plan-position", FindPositions},
    {"index-write", WriteIndexOnce},
    {"index-lookup", LookUp},
    {"index-scan", ScanIndex},
    {"tar-scan", ScanShards},
    {"s3-get", Get},
    {"s3-list", ReadListing},
    {"service-batch", Deliver},
};

int Main(int argc, char** argv) {
  if (argc == 1) {
    for (const auto& [name, run] : kCases) fmt::print("{}\n", name);
    return 0;
  }
  const auto found = kCases.find(argv[1]);
  uint64_t items = 0;
  const std::string_view number = argc == 3 ? argv[2] : "";
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), items);
  if (found == kCases.end() || error != std::errc() || end != number.data() + number.size() || items == 0) {
    fmt::print(stderr, "usage: hot_paths [CASE ITEMS], where CASE is one of those that hot_paths alone lists\n");
    return 2;
  }
  found->second(items);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return millrace::Main(argc, argv);
}
