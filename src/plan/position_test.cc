#include "plan/position.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(Position, RoundTrips) {
  Rng rng(1);
  for (int i = 0; i < 2000; ++i) {
    const Position position = {rng.Next() >> rng.Below(64), rng.Next() >> rng.Below(64), rng.Next() >> rng.Below(64)};
    const auto parsed = Position::Parse(position.ToString());
    ASSERT_TRUE(parsed.ok()) << position.ToString() << " " << parsed.status();
    EXPECT_EQ(parsed->epoch, position.epoch);
    EXPECT_EQ(parsed->consumed, position.consumed);
    EXPECT_EQ(parsed->fingerprint, position.fingerprint);
  }
  const Position largest = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  EXPECT_EQ(largest.ToString(), "mr2-18446744073709551615-18446744073709551615-ffffffffffffffff");
  EXPECT_EQ(Position::Parse(largest.ToString())->consumed, UINT64_MAX);
  EXPECT_EQ((Position{3, 12800, 0xab}).ToString(), "mr2-3-12800-00000000000000ab");
}

TEST(Position, OfAStageRoundTrips) {
  const Position position = {0, 384, 0xab, Position::Stage{.number = 3, .before = 70000}};
  EXPECT_EQ(position.ToString(), "mr3-0-384-3-70000-00000000000000ab");
  const auto parsed = Position::Parse(position.ToString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->consumed, 384u);
  EXPECT_EQ(parsed->fingerprint, 0xabu);
  EXPECT_EQ(parsed->stage, position.stage);
  EXPECT_FALSE(Position::Parse("mr2-0-0-00000000000000ab")->stage);
  for (const std::string_view text :
       {"mr3-0-384-00000000000000ab", "mr3-0-384-3-00000000000000ab", "mr3-0-384-3-01-00000000000000ab",
        "mr2-0-384-3-1-00000000000000ab", "mr3-0-384-3-1-2-00000000000000ab"}) {
    EXPECT_FALSE(Position::Parse(text).ok()) << text;
  }
}

TEST(Position, RefusesWhatIsNone) {
  for (const std::string_view text : {"",
                                      "m",
                                      "mr",
                                      "mr2",
                                      "mr2-",
                                      "mr2-0",
                                      "mr2-0-0",
                                      "mr2-0-0-",
                                      "mr2--0-00000000000000ab",
                                      "mr2-0--00000000000000ab",
                                      "mr-0-0-00000000000000ab",
                                      "mrx-0-0-00000000000000ab",
                                      "MR1-0-0-00000000000000ab",
                                      " mr2-0-0-00000000000000ab",
                                      "mr2-0-0-00000000000000ab ",
                                      "mr2-0-0-00000000000000ab\n",
                                      "mr2-0-0-00000000000000a",
                                      "mr2-0-0-00000000000000abc",
                                      "mr2-0-0-00000000000000AB",
                                      "mr2-0-0-0x000000000000ab",
                                      "mr2-0-0-00000000000000ag",
                                      "mr2-+1-0-00000000000000ab",
                                      "mr2--1-0-00000000000000ab",
                                      "mr2-0x1-0-00000000000000ab",
                                      "mr2-01-0-00000000000000ab",
                                      "mr2-0-00-00000000000000ab",
                                      "mr01-0-0-00000000000000ab",
                                      "mr2-0-1.5-00000000000000ab",
                                      "mr2-0-1e3-00000000000000ab",
                                      "mr2-18446744073709551616-0-00000000000000ab",
                                      "mr2-0-99999999999999999999999-00000000000000ab",
                                      "mr2-0-0-00000000000000ab-0",
                                      "mr2_0_0_00000000000000ab",
                                      "0-0-00000000000000ab"}) {
    const auto parsed = Position::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("is not a position")) << text;
  }
}

TEST(Position, NamesAVersionThatItDoesNotMakeAndWhatToDo) {
  for (const auto& [text, release] :
       {std::pair("mr1-0-0-00000000000000ab", "a former release"),
        std::pair("mr0-0-0-00000000000000ab", "a former release"), std::pair("mr1-whatever", "a former release"),
        std::pair("mr4-0-0-00000000000000ab", "a newer release"), std::pair("mr999-", "a newer release")}) {
    const auto parsed = Position::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(parsed.status().message());
    EXPECT_THAT(message, HasSubstr("is of version"));
    EXPECT_THAT(message, HasSubstr("this release makes version 2"));
    EXPECT_THAT(message, HasSubstr("means other samples"));
    EXPECT_THAT(message, HasSubstr(release));
    EXPECT_THAT(message, HasSubstr("start again without a position"));
  }
}

/// Damaged strings are refused or mean what they say; the message stays short and printable.
TEST(Position, SurvivesDamage) {
  Rng rng(2);
  const std::string good = Position{7, 123456, 0x0123456789abcdef}.ToString();
  for (int i = 0; i < 100'000; ++i) {
    std::string text = good;
    for (uint64_t edits = 1 + rng.Below(3); edits > 0; --edits) {
      const size_t at = rng.Below(text.size() + 1);
      switch (rng.Below(4)) {
        case 0:
          text.insert(at, 1, static_cast<char>(rng.Below(256)));
          break;
        case 1:
          text.resize(at);
          break;
        case 2:
          text.insert(at, text.substr(0, at));
          break;
        default:
          if (at < text.size()) text[at] = static_cast<char>(rng.Below(256));
      }
    }
    const auto parsed = Position::Parse(text);
    if (parsed.ok()) {
      ASSERT_EQ(parsed->ToString(), text);
      continue;
    }
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    ASSERT_LT(parsed.status().message().size(), 300u);
    for (const char c : parsed.status().message()) ASSERT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(OrderFingerprint, DependsOnAllThatDecidesTheOrder) {
  const OrderPolicy policy = {.shuffle = Shuffle::kWindow, .extent = 16, .window = 192, .lanes = 64};
  std::set<uint64_t> seen = {OrderFingerprint(1, 1000, policy, 7)};
  const auto differs = [&](uint64_t index, uint64_t samples, OrderPolicy other, uint64_t seed) {
    EXPECT_TRUE(seen.insert(OrderFingerprint(index, samples, other, seed)).second);
  };
  differs(2, 1000, policy, 7);
  differs(1, 1001, policy, 7);
  differs(1, 1000, policy, 8);
  differs(1, 1000, {.shuffle = Shuffle::kWindow, .extent = 17, .window = 192, .lanes = 64}, 7);
  differs(1, 1000, {.shuffle = Shuffle::kWindow, .extent = 16, .window = 128, .lanes = 64}, 7);
  differs(1, 1000, {.shuffle = Shuffle::kWindow, .extent = 16, .window = 192, .lanes = 32}, 7);
  differs(1, 1000, {.shuffle = Shuffle::kGlobal}, 7);
  differs(1, 1000, {.shuffle = Shuffle::kNone}, 7);
  EXPECT_EQ(OrderFingerprint(1, 1000, policy, 7), OrderFingerprint(1, 1000, policy, 7));
  // Numbers that the order does not use do not count.
  EXPECT_EQ(OrderFingerprint(1, 1000, {.shuffle = Shuffle::kGlobal, .extent = 16, .window = 192, .lanes = 64}, 7),
            OrderFingerprint(1, 1000, {.shuffle = Shuffle::kGlobal, .extent = 1, .window = 64, .lanes = 64}, 7));
}

}  // namespace
}  // namespace millrace
