// Lists the keys below a URI, and says how fast. With --fill it first puts that many empty objects there, whose keys
// have one of the shapes that are met in practice. One JSON object on stdout; bench/s3/list.py drives it.

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "base/process.h"
#include "base/rng.h"
#include "net/runtime.h"
#include "store/lister.h"
#include "store/stores.h"

namespace millrace {
namespace {

using KeyOf = std::function<std::string(uint64_t)>;

const std::map<std::string, KeyOf>& Shapes() {
  static const std::map<std::string, KeyOf> shapes = {
      {"flat", [](uint64_t i) { return fmt::format("{:08}.jpg", i); }},
      {"hashed", [](uint64_t i) { return fmt::format("{:016x}", Mix64(i)); }},
      {"deep",
       [](uint64_t i) {
         return fmt::format("data/2026/{:02}/{:02}/host-{}/part-{:05}.bin", i / 100000, i / 5000 % 20, i / 1000 % 5,
                            i % 1000);
       }},
      {"hot",
       [](uint64_t i) {
         return i % 20 == 0 ? fmt::format("cold/{:03}/{}", i % 777, i) : fmt::format("hot/2026-11-21/{:07}", i);
       }},
      {"classes",
       [](uint64_t i) {
         const auto name = static_cast<uint64_t>(1000 * std::pow(Rng(i).Unit(), 4));
         return fmt::format("train/n{:08}/img_{}.JPEG", 1440764 + 37 * name, i);
       }},
  };
  return shapes;
}

// So many puts at a time; the first error counts.
absl::Status Fill(const Location& location, const KeyOf& key, uint64_t count) {
  constexpr uint64_t kAtOnce = 256;
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t in_flight = 0;
  absl::Status status;
  std::unique_lock lock(mutex);
  for (uint64_t i = 0; i < count && status.ok(); ++i) {
    changed.wait(lock, [&] { return in_flight < kAtOnce; });
    ++in_flight;
    lock.unlock();
    location.store->Put(location.Key(key(i)), {}, {}, [&](const absl::StatusOr<ObjectInfo>& put) {
      std::lock_guard held(mutex);
      status.Update(put.status());
      --in_flight;
      changed.notify_all();
    });
    lock.lock();
  }
  changed.wait(lock, [&] { return in_flight == 0; });
  return status;
}

absl::StatusOr<nlohmann::ordered_json> List(const Location& location) {
  const uint64_t requests = location.store->counters().list;
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  Lister lister(*location.store, location.Key(""));
  uint64_t keys = 0;
  std::string last;
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, lister.Next());
    if (objects.empty()) break;
    for (const ObjectInfo& object : objects) {
      if (object.key <= last) return absl::DataLossError(object.key + " comes out of order");
      last = object.key;
    }
    keys += objects.size();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return nlohmann::ordered_json{{"keys", keys},
                                {"seconds", seconds},
                                {"keys_per_second", static_cast<double>(keys) / seconds},
                                {"cpu_seconds", CpuSeconds() - cpu},
                                {"requests", location.store->counters().list - requests},
                                {"max_rss_bytes", usage.ru_maxrss * 1024}};
}

absl::Status Run(const std::string& uri, const std::string& fill, uint64_t count) {
  Runtime runtime({.io_threads = 2, .cpu_threads = 1});
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location location, stores.Open(uri));
  if (!fill.empty()) return Fill(location, Shapes().at(fill), count);
  ASSIGN_OR_RETURN(const nlohmann::ordered_json report, List(location));
  std::printf("%s\n", report.dump().c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Lists the keys below a URI, or puts some there.");
  std::string uri, fill;
  uint64_t count = 1'000'000;
  app.add_option("uri", uri, "s3://bucket/prefix/")->required();
  app.add_option("--fill", fill, "Put empty objects there whose keys have this shape")->check(CLI::IsMember(Shapes()));
  app.add_option("--keys", count, "That many")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(uri, fill, count);
  if (status.ok()) return 0;
  std::fprintf(stderr, "list_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace millrace

// NOLINTNEXTLINE(bugprone-exception-escape): a program that measures may end by it.
int main(int argc, char** argv) {
  return millrace::Main(argc, argv);
}
