#include "service/job_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(JobSharesTest, OneJobMayHaveAll) {
  JobShares shares(100);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(shares.Admit("a", "host-a", "s" + std::to_string(i), 10).admitted);
  EXPECT_FALSE(shares.Admit("a", "host-a", "more", 10).admitted);
  shares.Release("s3");
  EXPECT_TRUE(shares.Admit("a", "host-a", "more", 10).admitted);
}

TEST(JobSharesTest, AnotherJobGetsItsShare) {
  JobShares shares(100);
  for (int i = 0; i < 10; ++i) shares.Admit("a", "host-a", "a" + std::to_string(i), 10);
  for (int i = 0; i < 5; ++i) {
    const JobShares::Admission admission = shares.Admit("b", "host-b", "b" + std::to_string(i), 10);
    EXPECT_TRUE(admission.admitted);
    EXPECT_THAT(admission.closed, ElementsAre("a" + std::to_string(9 - i)));
  }
  EXPECT_EQ(shares.UsedBy("a"), 50u);
  const JobShares::Admission more = shares.Admit("b", "host-b", "more", 10);
  EXPECT_FALSE(more.admitted);
  EXPECT_THAT(more.closed, IsEmpty()) << "both have their share";
  EXPECT_FALSE(shares.Admit("a", "host-a", "more", 10).admitted);
  EXPECT_EQ(shares.ShareOf("a", "host-a"), 50u);
  EXPECT_EQ(shares.ShareOf("c", "host-c"), 33u);
}

TEST(JobSharesTest, AShareThatNobodyElseWantsIsFree) {
  JobShares shares(100);
  shares.Admit("a", "host-a", "a0", 10);
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(shares.Admit("b", "host-b", "b" + std::to_string(i), 10).admitted);
  const JobShares::Admission admission = shares.Admit("a", "host-a", "a1", 10);
  EXPECT_TRUE(admission.admitted);
  EXPECT_THAT(admission.closed, ElementsAre("b8"));
}

TEST(JobSharesTest, AJobThatEndsMakesRoom) {
  JobShares shares(100);
  shares.Admit("a", "host-a", "a0", 60);
  EXPECT_FALSE(shares.Admit("b", "host-b", "b0", 101).admitted) << "more than there is";
  EXPECT_TRUE(shares.Admit("b", "host-b", "b1", 60).admitted) << "the first one, in place of one beyond its share";
  EXPECT_EQ(shares.UsedBy("a"), 0u);
  shares.Release("b1");
  shares.Release("b1");
  EXPECT_EQ(shares.ShareOf("a", "host-a"), 100u);
  EXPECT_TRUE(shares.Admit("a", "host-a", "a1", 100).admitted);
}

TEST(JobSharesTest, C19InventedNamesTakeNothingFromOthers) {
  JobShares shares(100);
  for (int i = 0; i < 10; ++i) shares.Admit("a", "host-a", "a" + std::to_string(i), 10);
  for (int i = 0; i < 50; ++i) {
    const std::string name = "invented-" + std::to_string(i);
    shares.Admit(name, "host-b", name, i == 0 ? 50 : 1);
    EXPECT_EQ(shares.ShareOf("a", "host-a"), 50u) << i;
    EXPECT_EQ(shares.UsedBy("a"), 50u) << i;
  }
  EXPECT_FALSE(shares.Admit("huge", "host-b", "huge", 90).admitted) << "a new name is no first stream";
  EXPECT_EQ(shares.UsedBy("a"), 50u);
  // A job of several hosts has its share, though one of these has another job, too.
  EXPECT_TRUE(shares.Admit("a", "host-b", "a-there", 0).admitted);
  EXPECT_EQ(shares.ShareOf("a", "host-b"), 50u);
}

// The sums of these fractions are not exact in doubles: no job loses a byte, which would be a stream.
TEST(JobSharesTest, C19SharesAreExact) {
  for (uint64_t jobs = 1; jobs <= 40; ++jobs) {
    for (uint64_t others = 1; others <= 40; ++others) {
      const uint64_t unit = uint64_t{1} << 30;
      JobShares shares(2 * jobs * others * unit);
      for (uint64_t i = 0; i < jobs; ++i) shares.Admit("a" + std::to_string(i), "a", "a" + std::to_string(i), 1);
      for (uint64_t i = 0; i < others; ++i) shares.Admit("b" + std::to_string(i), "b", "b" + std::to_string(i), 1);
      EXPECT_EQ(shares.ShareOf("a0", "a"), others * unit) << jobs << " and " << others;
      EXPECT_EQ(shares.ShareOf("b0", "b"), jobs * unit) << jobs << " and " << others;
    }
  }
}

TEST(JobSharesTest, JobsOfOneHostShareEvenly) {
  JobShares shares(100);
  for (int i = 0; i < 10; ++i) shares.Admit("a", "host", "a" + std::to_string(i), 10);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(shares.Admit("b", "host", "b" + std::to_string(i), 10).admitted);
  EXPECT_FALSE(shares.Admit("b", "host", "more", 10).admitted);
  EXPECT_EQ(shares.UsedBy("a"), 50u);
}

// Whatever comes: never more than there is, and no job is below its share while it wants more and another one is above.
TEST(JobSharesTest, SharesAreFairWhateverComes) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    JobShares shares(1000);
    std::set<std::string> open;
    for (int turn = 0; turn < 300; ++turn) {
      if (!open.empty() && random() % 3 == 0) {
        const auto at = std::next(open.begin(), static_cast<std::ptrdiff_t>(random() % open.size()));
        shares.Release(*at);
        open.erase(at);
        continue;
      }
      const std::string job(1, static_cast<char>('a' + random() % 4));
      const std::string session = job + std::to_string(turn);
      const JobShares::Admission admission = shares.Admit(job, job, session, 20);
      for (const std::string& closed : admission.closed) {
        EXPECT_EQ(open.erase(closed), 1u);
        EXPECT_NE(closed[0], job[0]);
      }
      if (admission.admitted) open.insert(session);
      uint64_t used = 0;
      uint64_t most = 0;
      for (const char each : {'a', 'b', 'c', 'd'}) {
        used += shares.UsedBy(std::string(1, each));
        most = std::max(most, shares.UsedBy(std::string(1, each)));
      }
      ASSERT_LE(used, 1000u);
      ASSERT_EQ(used, open.size() * 20);
      if (!admission.admitted && shares.UsedBy(job) + 20 <= shares.ShareOf(job, job)) {
        ASSERT_LE(most, shares.ShareOf(job, job)) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
