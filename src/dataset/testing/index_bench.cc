// Size and speed of the index of a usual data set (see UsualModel):
//   index_bench [SAMPLES]

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "base/rng.h"
#include "dataset/testing/index_model.h"

namespace millrace {
namespace {

double Seconds(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

int Bench(uint64_t samples) {
  Rng rng(1);
  const testing::Model model = testing::UsualModel(samples, rng);
  auto start = std::chrono::steady_clock::now();
  absl::StatusOr<std::string> bytes = testing::WriteIndex(model);
  if (!bytes.ok()) return 1;
  const auto count = static_cast<double>(samples);
  fmt::print("{} samples: {:.2f} bytes a sample, written at {:.0f} ns a sample\n", samples,
             static_cast<double>(bytes->size()) / count, Seconds(start) / count * 1e9);

  start = std::chrono::steady_clock::now();
  const auto index = Index::FromBytes(*std::move(bytes));
  if (!index.ok()) return 1;
  fmt::print("opened in {:.1f} us\n", Seconds(start) * 1e6);

  IndexedSample sample;
  uint64_t sum = 0;  // keeps the lookups
  for (const bool random : {false, true}) {
    start = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < samples; ++i) {
      if (!(*index)->Lookup(random ? rng.Below(samples) : i, &sample).ok()) return 1;
      sum += sample.crc32c;
    }
    fmt::print("{} lookup: {:.0f} ns\n", random ? "random" : "sequential", Seconds(start) / count * 1e9);
  }
  return sum == 0 ? 1 : 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  return millrace::Bench(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000);
}
