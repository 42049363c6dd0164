#include <cstdint>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/plan.h"
#include "plan/position.h"

/// The order is a promise: positions of earlier releases must lead to the same samples. If one of these values has to
/// change, raise the version in position.cc (and thereby the prefix of positions) in the same commit.

namespace millrace {
namespace {

using ::testing::ElementsAre;

std::string DigestOfOrder(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch) {
  const Plan plan(samples, policy, seed, epoch);
  Xxh3Stream hash;
  for (uint64_t position = 0; position < samples; ++position) hash.UpdateLe64(plan.At(position));
  return hash.Digest().Hex();
}

std::vector<uint64_t> Order(uint64_t samples, const OrderPolicy& policy, uint64_t seed, uint64_t epoch) {
  const Plan plan(samples, policy, seed, epoch);
  std::vector<uint64_t> order;
  for (uint64_t position = 0; position < samples; ++position) order.push_back(plan.At(position));
  return order;
}

TEST(PlanGolden, SmallOrders) {
  EXPECT_THAT(Order(8, {.shuffle = Shuffle::kGlobal}, 1, 0), ElementsAre(4, 5, 0, 1, 2, 6, 7, 3));
  EXPECT_THAT(Order(12, {.shuffle = Shuffle::kWindow, .extent = 2, .window = 2, .lanes = 2}, 1, 0),
              ElementsAre(9, 3, 8, 2, 7, 10, 6, 11, 1, 4, 0, 5));
  EXPECT_THAT(Order(11, {.shuffle = Shuffle::kWindow, .extent = 4, .window = 4, .lanes = 2}, 7, 1),
              ElementsAre(9, 0, 5, 2, 7, 1, 6, 3, 4, 10, 8));
  // This is the example of docs/plan.md.
  EXPECT_THAT(Order(27, {.shuffle = Shuffle::kWindow, .extent = 4, .window = 4, .lanes = 2}, 7, 0),
              ElementsAre(6, 26, 24, 12, 7, 15, 25, 13, 5, 14, 4,                      // with the rest
                          16, 21, 17, 8, 1, 23, 19, 11, 0, 20, 2, 9, 18, 22, 3, 10));  // of two rows
}

TEST(PlanGolden, LargerOrders) {
  const OrderPolicy images = {.shuffle = Shuffle::kWindow, .extent = 13, .window = 192, .lanes = 64};
  const OrderPolicy texts = {.shuffle = Shuffle::kWindow, .extent = 1000, .window = 128, .lanes = 32};
  EXPECT_EQ(DigestOfOrder(1000, {.shuffle = Shuffle::kNone}, 1, 2), "5b70cd737fec0b6929462356e2d9061a");
  EXPECT_EQ(DigestOfOrder(200, {.shuffle = Shuffle::kGlobal}, 1, 2), "253123ffeda9876219554150fe17c8ac");
  EXPECT_EQ(DigestOfOrder(50'000, {.shuffle = Shuffle::kGlobal}, 1, 2), "2db67a9f5deef5f8b64cda8a45bd41bf");
  EXPECT_EQ(DigestOfOrder(20'000, images, 42, 0), "e586305288583ce8ab35b31e2f77be98");
  EXPECT_EQ(DigestOfOrder(20'000, images, 42, 1), "311441d27b3ab19b6634c706359262f2");
  EXPECT_EQ(DigestOfOrder(300'001, texts, UINT64_MAX, 5), "a4bc84dfd8fc522df590a18bec7d365a");
}

TEST(PlanGolden, HugeOrders) {
  const uint64_t samples = 1'000'000'000'007;
  const Plan global(samples, {.shuffle = Shuffle::kGlobal}, 9, 9);
  EXPECT_THAT((std::vector<uint64_t>{global.At(0), global.At(1), global.At(samples - 1)}),
              ElementsAre(579574397403u, 195953490369u, 115168982932u));
  const Plan window(samples, {.shuffle = Shuffle::kWindow, .extent = 16, .window = 192, .lanes = 64}, 9, 9);
  EXPECT_THAT((std::vector<uint64_t>{window.At(0), window.At(1), window.At(samples - 1)}),
              ElementsAre(908726971807u, 271397375695u, 179697913500u));
}

TEST(PlanGolden, Fingerprints) {
  const OrderPolicy policy = {.shuffle = Shuffle::kWindow, .extent = 16, .window = 192, .lanes = 64};
  const Position position = {.epoch = 2, .consumed = 512, .fingerprint = OrderFingerprint(0x1234, 60'000, policy, 42)};
  EXPECT_EQ(position.ToString(), "mr2-2-512-31a3e00f4f5643a2");
  EXPECT_EQ(OrderFingerprint(0x1234, 60'000, {.shuffle = Shuffle::kGlobal}, 42), 0x70906a701c951412u);
}

}  // namespace
}  // namespace millrace
