#include "plan/permutation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "base/testing/test_all.h"
#include "gtest/gtest.h"
#include "plan/testing/chi_square.h"

namespace millrace {
namespace {

constexpr double kChance = 5;

std::vector<uint64_t> Values(const Permutation& permutation) {
  std::vector<uint64_t> values(permutation.size());
  std::iota(values.begin(), values.end(), uint64_t{0});
  permutation.Map(values);
  return values;
}

void ExpectPermutation(uint64_t n, uint64_t key) {
  const Permutation permutation(n, key);
  std::vector<uint8_t> seen(n, 0);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t value = permutation.At(i);
    ASSERT_LT(value, n) << "n=" << n << " key=" << key << " index=" << i;
    ASSERT_EQ(seen[value]++, 0) << "n=" << n << " key=" << key << " index=" << i;
    ASSERT_EQ(permutation.IndexOf(value), i) << "n=" << n << " key=" << key;
  }
}

TEST(Divider, IsExactUpToItsLimit) {
  Rng rng(1);
  const auto check = [](uint64_t value, uint64_t divisor) {
    const auto [quotient, remainder] = Divider(divisor).Divide(value);
    ASSERT_EQ(quotient, value / divisor) << value << " / " << divisor;
    ASSERT_EQ(remainder, value % divisor) << value << " % " << divisor;
  };
  for (uint64_t divisor = 1; divisor < 300; ++divisor) {
    for (uint64_t value = 0; value < 1000; ++value) check(value, divisor);
  }
  for (int i = 0; i < 200'000; ++i) {
    const uint64_t value = rng.Next() >> (2 + rng.Below(62));
    const uint64_t divisor = std::max<uint64_t>(1, rng.Next() >> rng.Below(64));
    check(value, divisor);
    const uint64_t multiple = value / divisor * divisor;
    check(multiple, divisor);
    if (multiple > 0) check(multiple - 1, divisor);
  }
}

TEST(Permutation, IsABijectionForEverySizeTo2000) {
  for (uint64_t n = 1; n <= (kSanitized ? 500 : 2000); ++n) ExpectPermutation(n, n * 31);
}

TEST(Permutation, IsABijectionAroundPowersOfTwoAndSquares) {
  for (uint64_t power = 4096; power <= 65536; power *= 2) {
    for (const uint64_t n : {power - 1, power, power + 1}) ExpectPermutation(n, 5);
  }
  for (const uint64_t root : {64u, 101u, 255u}) {
    for (const uint64_t n : {root * root - 1, root * root, root * root + 1, root * (root + 1), root * (root + 1) + 1}) {
      ExpectPermutation(n, root);
    }
  }
}

TEST(Permutation, RoundTripsAtSizesOfAnyMagnitude) {
  Rng rng(2);
  std::vector<uint64_t> sizes = {Permutation::kMaxSize, Permutation::kMaxSize - 1, (uint64_t{1} << 52) + 1,
                                 uint64_t{94906267} * 94906267};  // a square that a double cannot hold
  for (int i = 0; i < 500; ++i) sizes.push_back(1 + (rng.Next() >> (4 + rng.Below(50))));
  for (const uint64_t n : sizes) {
    const Permutation permutation(n, rng.Next());
    for (int i = 0; i < 100; ++i) {
      const uint64_t index = rng.Below(n);
      const uint64_t value = permutation.At(index);
      ASSERT_LT(value, n);
      ASSERT_EQ(permutation.IndexOf(value), index) << n;
      ASSERT_EQ(permutation.At(permutation.IndexOf(index)), index) << n;
    }
    ASSERT_EQ(permutation.IndexOf(permutation.At(n - 1)), n - 1);
  }
}

TEST(Permutation, TableAndMapAgreeWithAt) {
  for (uint64_t n = 1; n <= 600; ++n) {
    const Permutation permutation(n, n + 9);
    const std::vector<uint64_t> values = Values(permutation);
    std::vector<uint8_t> table(permutation.small() ? n : 0);
    if (permutation.small()) permutation.FillTable(table);
    for (uint64_t i = 0; i < n; ++i) {
      ASSERT_EQ(values[i], permutation.At(i));
      if (permutation.small()) {
        ASSERT_EQ(table[i], permutation.At(i));
      }
    }
  }
}

TEST(Permutation, MapEachAgreesWithAt) {
  std::vector<Permutation> permutations;
  for (uint64_t n = 257; n < 700; ++n) permutations.emplace_back(n, n);
  for (size_t count = 0; count <= permutations.size(); count += 13) {
    std::vector<const Permutation*> by;
    std::vector<uint64_t> values;
    for (size_t i = 0; i < count; ++i) {
      by.push_back(&permutations[i * 7 % permutations.size()]);
      values.push_back(i % by.back()->size());
    }
    Permutation::MapEach(by, values);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], by[i]->At(i % by[i]->size()));
  }
}

/// Every order of n elements must come up, and about equally often.
TEST(Permutation, TinySizesReachEveryOrder) {
  uint64_t factorial = 1;
  for (uint64_t n = 2; n <= (kSanitized ? 6 : 8); ++n) {
    factorial *= n;
    std::map<std::vector<uint64_t>, uint64_t> orders;
    const uint64_t keys = factorial * 25;
    for (uint64_t key = 0; key < keys; ++key) ++orders[Values(Permutation(n, key))];
    ASSERT_EQ(orders.size(), factorial) << n;
    std::vector<uint64_t> counts;
    for (const auto& [order, count] : orders) counts.push_back(count);
    EXPECT_LT(std::abs(ChiSquareZ(counts)), kChance) << n;
  }
}

struct Histograms {
  double first = 0;       // where element 0 goes
  double neighbours = 0;  // distance of elements 0 and 1, modulo n
  double column = 0;      // distance of two elements in the same column of the Feistel square
  double adjacent = 0;    // distances of all adjacent elements, of all keys together
};

/// `order` makes the order of one key.
Histograms Measure(uint64_t n, uint64_t keys, const std::function<std::vector<uint64_t>(uint64_t key)>& order) {
  const auto root = static_cast<uint64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  const uint64_t columns = (n + root - 1) / root;
  std::vector<uint64_t> first(n), neighbours(n - 1), column(n - 1), adjacent(n - 1);
  for (uint64_t key = 0; key < keys; ++key) {
    const std::vector<uint64_t> values = order(key);
    ++first[values[0]];
    ++neighbours[(values[1] + n - values[0]) % n - 1];
    ++column[(values[columns] + n - values[0]) % n - 1];
    for (uint64_t i = 0; i + 1 < n; ++i) ++adjacent[(values[i + 1] + n - values[i]) % n - 1];
  }
  return {ChiSquareZ(first), ChiSquareZ(neighbours), ChiSquareZ(column), ChiSquareZ(adjacent)};
}

TEST(PermutationQuality, PositionsAndPairsAreUniform) {
  // Around the change from the shuffle to the network, where the latter has its smallest halves.
  for (const uint64_t n : {9u, 48u, 200u, 256u, 257u, 300u, 1025u}) {
    const Histograms z =
        Measure(n, (kSanitized ? 500'000 : 3'000'000) / n, [n](uint64_t key) { return Values(Permutation(n, key)); });
    EXPECT_LT(std::abs(z.first), kChance) << n;
    EXPECT_LT(std::abs(z.neighbours), kChance) << n;
    EXPECT_LT(std::abs(z.column), kChance) << n;
    EXPECT_LT(std::abs(z.adjacent), kChance) << n;
  }
}

/// The measure itself must notice the classic mistake: exchanging with any place instead of one not above.
TEST(PermutationQuality, MeasureNoticesABiasedShuffle) {
  constexpr uint64_t kSize = 48;
  const Histograms z = Measure(kSize, 3'000'000 / kSize, [](uint64_t key) {
    Rng rng(key);
    std::vector<uint64_t> values(kSize);
    std::iota(values.begin(), values.end(), uint64_t{0});
    for (uint64_t i = 0; i < kSize; ++i) std::swap(values[i], values[rng.Below(kSize)]);
    return values;
  });
  EXPECT_GT(std::max(z.first, z.adjacent), 2 * kChance);
}

TEST(PermutationQuality, EveryElementGoesEverywhere) {
  constexpr uint64_t kSize = 40;
  std::vector<uint64_t> cells(kSize * kSize);
  for (uint64_t key = 0; key < 40'000; ++key) {
    const std::vector<uint64_t> values = Values(Permutation(kSize, key));
    for (uint64_t i = 0; i < kSize; ++i) ++cells[i * kSize + values[i]];
  }
  // Rows and columns each have a fixed sum, which takes (2n-1) of n^2 degrees of freedom: well within the margin.
  EXPECT_LT(std::abs(ChiSquareZ(cells)), kChance);
}

/// Keys that differ in one bit give unrelated orders: on average one element stays where it was, as between random
/// orders, and the number has variance 1.
TEST(PermutationQuality, OneBitOfTheKeyChangesEverything) {
  for (const uint64_t n : {48u, 256u, 300u, 5000u}) {
    double sum = 0;
    double squares = 0;
    int pairs = 0;
    for (uint64_t key = 0; key < (kSanitized ? 15 : 60); ++key) {
      const std::vector<uint64_t> base = Values(Permutation(n, key));
      for (int bit = 0; bit < 64; ++bit, ++pairs) {
        const std::vector<uint64_t> other = Values(Permutation(n, key ^ (uint64_t{1} << bit)));
        double same = 0;
        for (uint64_t i = 0; i < n; ++i) same += base[i] == other[i] ? 1 : 0;
        sum += same;
        squares += same * same;
      }
    }
    const double mean = sum / pairs;
    EXPECT_NEAR(mean, 1, 0.1) << n;
    EXPECT_NEAR(squares / pairs - mean * mean, 1, 0.2) << n;
  }
}

/// Neither the order nor its inverse keeps anything of the sequence: no trend, as many rises as falls, one fixed point.
TEST(PermutationQuality, NothingRemainsOfTheOldOrder) {
  constexpr uint64_t kSize = 4096;
  constexpr uint64_t kKeys = 300;
  double correlation = 0;
  double rises = 0;
  double fixed = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const std::vector<uint64_t> values = Values(Permutation(kSize, key));
    for (uint64_t i = 0; i < kSize; ++i) {
      const double x = static_cast<double>(i) / kSize - 0.5;
      const double y = static_cast<double>(values[i]) / kSize - 0.5;
      correlation += 12 * x * y / kSize;
      rises += values[(i + 1) % kSize] > values[i] ? 1 : 0;
      fixed += values[i] == i ? 1 : 0;
    }
  }
  EXPECT_NEAR(correlation / kKeys, 0, 5 / std::sqrt(double{kSize} * kKeys));
  EXPECT_NEAR(rises / kKeys / kSize, 0.5, 5 * std::sqrt(1.0 / 12 / kSize / kKeys));
  EXPECT_NEAR(fixed / kKeys, 1, 5 / std::sqrt(double{kKeys}));
}

}  // namespace
}  // namespace millrace
