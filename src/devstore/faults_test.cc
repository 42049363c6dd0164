#include "devstore/faults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "devstore/latency.h"
#include "devstore/reply_faults.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::steady_clock::time_point;

FaultRule Rule(std::string_view spec) {
  auto rule = ParseFaultRule(spec);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return rule.ok() ? *std::move(rule) : FaultRule{};
}

TEST(FaultRule, ParsesEveryAction) {
  const FaultRule rule = Rule("GET b/tar/* status=503 p=0.3 after=2 count=5 from=1.5 until=30");
  EXPECT_EQ(rule.method, "GET");
  EXPECT_EQ(rule.action.kind, FaultKind::kStatus);
  EXPECT_EQ(rule.action.value, 503u);
  EXPECT_EQ(rule.probability, 0.3);
  EXPECT_EQ(rule.after, 2u);
  EXPECT_EQ(rule.count, 5u);
  EXPECT_EQ(rule.from_s, 1.5);
  EXPECT_EQ(rule.until_s, 30);
  const FaultAction stall = Rule("* * stall=1000:250").action;
  EXPECT_EQ(stall.kind, FaultKind::kStall);
  EXPECT_EQ(stall.offset, 1000u);
  EXPECT_EQ(stall.value, 250u);
  EXPECT_TRUE(Rule("* * cut=head").action.at_head);
  EXPECT_EQ(Rule("* * cut=77").action.offset, 77u);
  EXPECT_TRUE(Rule("* * reset=head:5").action.at_head);
  EXPECT_EQ(Rule("* * reset=head:5").action.offset, 5u);
  EXPECT_EQ(Rule("* * error=400:ExpiredToken").action.value, 400u);
  EXPECT_EQ(Rule("* * error=400:ExpiredToken").action.code, "ExpiredToken");
  EXPECT_EQ(Rule("* * close").action.kind, FaultKind::kClose);
  EXPECT_EQ(Rule("* * chunked=8").action.offset, 8u);
  EXPECT_GT(Rule("* * chunked").action.offset, uint64_t{1} << 39);
  EXPECT_EQ(Rule("* * short-range").action.kind, FaultKind::kShortRange);
  EXPECT_EQ(Rule("* * whole").action.kind, FaultKind::kWholeBody);
  EXPECT_EQ(Rule("* * reset=head").action.kind, FaultKind::kReset);
  EXPECT_EQ(Rule("* * flip=9").action.offset, 9u);
  EXPECT_EQ(Rule("* * retry-after=3").action.value, 3u);
  EXPECT_EQ(Rule("* * limit=100").action.value, 100u);
  EXPECT_EQ(Rule("* * delay-ms=5000").action.value, 5000u);
  EXPECT_EQ(Rule("* * rate=1024").action.value, 1024u);
  EXPECT_EQ(Rule("* * wrong-range").action.kind, FaultKind::kWrongRange);
  EXPECT_EQ(Rule("* * new-etag").action.kind, FaultKind::kNewETag);
  EXPECT_EQ(Rule("  *   *  error-in-200 ").action.kind, FaultKind::kErrorIn200);
  EXPECT_EQ(Rule("GET * skip-key").action.kind, FaultKind::kSkipKey);
}

TEST(FaultRule, ExplainsWhatIsWrong) {
  for (const char* bad : {"",
                          "GET",
                          "GET b/*",
                          "GET b/* explode",
                          "get b/* status=503",
                          "GET b/* status",
                          "GET b/* status=99",
                          "GET b/* status=5o3",
                          "GET b/* status=503 p=2",
                          "GET b/* status=503 p=nan",
                          "GET b/* status=503 q=1",
                          "GET b/* status=503 p=0.1 p=0.2",
                          "GET b/* stall=5",
                          "GET b/* stall=:5",
                          "GET b/* cut",
                          "GET b/* cut=-1",
                          "GET b/* cut=head5",
                          "GET b/* cut=head:",
                          "GET b/* error=400",
                          "GET b/* error=400:",
                          "GET b/* error=200:Fine",
                          "GET b/* error=400:<b>",
                          "GET b/* chunked=",
                          "GET b/* close=1",
                          "GET b/* wrong-range=3",
                          "GET b/%zz status=503",
                          "GET b/* rate=0",
                          "GET b/* limit=0",
                          "GET b/* flip=99999999999999999999",
                          "GET b/* status=503 from=5 until=5",
                          "GET b/* delay-ms=1e3"}) {
    const auto rule = ParseFaultRule(bad);
    EXPECT_EQ(rule.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(rule.status().message().find("--fault"), absl::string_view::npos);
  }
}

TEST(FaultRule, MatchesKeysByGlob) {
  const auto matches = [](std::string_view glob, std::string_view key) {
    return MatchesKey(Rule("GET " + std::string(glob) + " status=503"), key);
  };
  EXPECT_TRUE(matches("b/tar/*", "b/tar/x/y.tar"));  // crosses '/'
  EXPECT_TRUE(matches("b/tar/*", "b/tar/"));
  EXPECT_FALSE(matches("b/tar/*", "b/tax/1"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("b/*.tar", "b/a.tar.tar"));
  EXPECT_FALSE(matches("b/*.tar", "b/a.tar.gz"));
  EXPECT_TRUE(matches("b/*x*x", "b/axbx"));
  EXPECT_FALSE(matches("b/*x*x", "b/ax"));  // one x cannot be both
  EXPECT_TRUE(matches("b/a%20b", "b/a b"));
  EXPECT_TRUE(matches("b/a%2A", "b/a*"));  // an escaped star is itself
  EXPECT_FALSE(matches("b/a%2A", "b/ab"));
  EXPECT_FALSE(matches("b/a", "b/ab"));
  EXPECT_FALSE(matches("ab*ab", "ab"));
}

FaultPlan Plan(std::vector<std::string> specs, uint64_t seed = 1) {
  std::vector<FaultRule> rules;
  for (const std::string& spec : specs) rules.push_back(Rule(spec));
  return FaultPlan(std::move(rules), seed);
}

TEST(FaultPlan, TheFirstRuleThatWinsActs) {
  FaultPlan plan = Plan({"GET b/x status=500 count=1", "GET b/* status=503", "* * status=404"});
  const RequestIdentity x{"GET", "b/x", "", 0};
  EXPECT_EQ(plan.Draw(x, Time())->value, 500u);
  EXPECT_EQ(plan.Draw(x, Time())->value, 503u);
  EXPECT_EQ(plan.Draw({"GET", "b/y", "", 0}, Time())->value, 503u);
  EXPECT_EQ(plan.Draw({"PUT", "b/x", "", 0}, Time())->value, 404u);
}

TEST(FaultPlan, CountsMatchesAndFirings) {
  FaultPlan plan = Plan({"GET b/* status=503 after=2 count=3"});
  std::string fired;
  for (uint64_t i = 0; i < 8; ++i) {
    EXPECT_FALSE(plan.Draw({"GET", "c/other", "", i}, Time()));
    fired += plan.Draw({"GET", "b/x", "", i}, Time()) ? 'F' : '.';
  }
  EXPECT_EQ(fired, "..FFF...");
  EXPECT_EQ(plan.firings(), std::vector<uint64_t>{3});
}

TEST(FaultPlan, CountsSecondsFromTheFirstMatch) {
  FaultPlan plan = Plan({"GET b/* status=503 from=1 until=2"});
  const Time first = Time() + milliseconds(500);
  const auto draws = [&](int ms) { return plan.Draw({"GET", "b/x", "", 0}, first + milliseconds(ms)).has_value(); };
  EXPECT_FALSE(draws(0));
  EXPECT_FALSE(draws(999));
  EXPECT_TRUE(draws(1000));
  EXPECT_TRUE(draws(1999));
  EXPECT_FALSE(draws(2000));
}

TEST(FaultPlan, DrawsAreAFunctionOfSeedAndRequest) {
  const auto draws = [](uint64_t seed, bool backwards) {
    FaultPlan plan = Plan({"GET * status=503 p=0.3"}, seed);
    std::vector<bool> result(1000);
    for (size_t i = 0; i < result.size(); ++i) {
      const size_t n = backwards ? result.size() - 1 - i : i;
      const std::string key = "b/" + std::to_string(n / 4);
      result[n] = plan.Draw({"GET", key, n % 2 == 0 ? "bytes=0-1" : "", n / 2 % 2}, Time()).has_value();
    }
    return result;
  };
  EXPECT_EQ(draws(1, false), draws(1, true));  // the order of arrival plays no part
  EXPECT_NE(draws(1, false), draws(2, false));
  const std::vector<bool> fired = draws(1, false);
  EXPECT_NEAR(static_cast<double>(std::count(fired.begin(), fired.end(), true)), 300, 50);
}

TEST(FaultPlan, LimitsRequestsPerSecond) {
  FaultPlan plan = Plan({"GET * limit=10"});
  const auto refused = [&](Time now, int n) {
    int count = 0;
    for (int i = 0; i < n; ++i) count += plan.Draw({"GET", "b/x", "", 0}, now) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(refused(Time() + milliseconds(1), 15), 5);
  EXPECT_EQ(refused(Time() + milliseconds(501), 15), 10);
  EXPECT_EQ(refused(Time() + milliseconds(60'000), 15), 5);  // saves up no more than a second's worth
}

TEST(Latency, IsLogNormalWithATail) {
  LatencyModel model{.first_byte_ms = 30, .first_byte_sigma = 0.3, .tail_ms = 400, .tail_fraction = 0.05};
  std::vector<double> body;
  int tail = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const std::string key = "b/" + std::to_string(i);
    const double ms = static_cast<double>(FirstByteDelay(model, 7, {"GET", key, "", 0}).count()) * 1e-6;
    if (ms == 400) {
      ++tail;
    } else {
      body.push_back(std::log(ms));
    }
  }
  EXPECT_NEAR(tail, kDraws * 0.05, 120);
  std::sort(body.begin(), body.end());
  EXPECT_NEAR(std::exp(body[body.size() / 2]), 30, 0.5);
  double mean = 0;
  for (const double x : body) mean += x / static_cast<double>(body.size());
  double variance = 0;
  for (const double x : body) variance += (x - mean) * (x - mean) / static_cast<double>(body.size());
  EXPECT_NEAR(std::sqrt(variance), 0.3, 0.01);
}

TEST(Latency, DependsOnSeedAndRequestOnly) {
  const LatencyModel model{.first_byte_ms = 30};
  const RequestIdentity request{"GET", "b/k", "bytes=0-9", 1};
  EXPECT_EQ(FirstByteDelay(model, 1, request), FirstByteDelay(model, 1, request));
  EXPECT_NE(FirstByteDelay(model, 1, request), FirstByteDelay(model, 2, request));
  for (const RequestIdentity& other :
       {RequestIdentity{"HEAD", "b/k", "bytes=0-9", 1}, RequestIdentity{"GET", "b/l", "bytes=0-9", 1},
        RequestIdentity{"GET", "b/k", "bytes=0-8", 1}, RequestIdentity{"GET", "b/k", "bytes=0-9", 2}}) {
    EXPECT_NE(FirstByteDelay(model, 1, request), FirstByteDelay(model, 1, other));
  }
}

TEST(LatencyModel, AnswersLeaveTogetherAndHardlyLater) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  using std::chrono::nanoseconds;
  const std::chrono::steady_clock::time_point begin{std::chrono::hours(1)};
  std::set<std::chrono::steady_clock::time_point> leave;
  for (int i = 0; i < 1000; ++i) {
    const auto arrived = begin + microseconds(20 * i);
    for (const nanoseconds delay :
         {nanoseconds(0), nanoseconds(5), nanoseconds(microseconds(300)), nanoseconds(milliseconds(30))}) {
      EXPECT_GE(LeavesAt(arrived, delay), arrived + delay);
      EXPECT_LE(LeavesAt(arrived, delay), arrived + delay + delay / 16);
    }
    leave.insert(LeavesAt(arrived, milliseconds(i % 2 == 0 ? 33 : 50)));
  }
  EXPECT_LE(leave.size(), 22u) << "of 1,000 within 37 ms";
}

TEST(AttemptCounter, CountsEachRequestByItself) {
  AttemptCounter counter;
  EXPECT_EQ(counter.Next({"GET", "b/k", "", 0}), 0u);
  EXPECT_EQ(counter.Next({"GET", "b/k", "", 0}), 1u);
  EXPECT_EQ(counter.Next({"GET", "b/k", "bytes=0-1", 0}), 0u);
  EXPECT_EQ(counter.Next({"HEAD", "b/k", "", 0}), 0u);
  EXPECT_EQ(counter.Next({"GET", "b/k", "", 0}), 2u);
}

TEST(PrefixRates, AreOfTheFolderOfAKey) {
  PrefixRates rates(3);
  const auto granted = [&](std::string_view key, Time now) {
    int count = 0;
    for (int i = 0; i < 10; ++i) count += rates.Take(key, now) ? 1 : 0;
    return count;
  };
  const Time now = Time() + milliseconds(1);
  EXPECT_EQ(granted("b/x/1", now), 3);
  EXPECT_EQ(granted("b/x/2", now), 0);    // the same prefix
  EXPECT_EQ(granted("b/x/y/1", now), 3);  // another
  EXPECT_EQ(granted("c/x/1", now), 3);
  EXPECT_EQ(granted("b/x/1", now + milliseconds(1000)), 3);
  PrefixRates unlimited(0);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(unlimited.Take("b/x", now));
}

/// Carries the steps of a body out into text: "..." bytes, '|' a pause, 'F' / 'R' an end, '<n>' a rate.
std::string Play(const HttpReply& reply) {
  std::string out;
  for (const ReplyStep& step : reply.body) {
    if (const auto* text = std::get_if<SendText>(&step)) out += text->text;
    if (const auto* bytes = std::get_if<SendBytes>(&step)) out += AsText(bytes->bytes);
    if (std::holds_alternative<SendPause>(step)) out += '|';
    if (const auto* end = std::get_if<EndConnection>(&step)) out += end->reset ? 'R' : 'F';
    if (const auto* rate = std::get_if<SendRate>(&step)) out += "<" + std::to_string(rate->bytes_per_second) + ">";
  }
  return out;
}

HttpReply TwoSteps() {
  static const std::string memory = "defgh";
  HttpReply reply;
  reply.body.emplace_back(SendText{"abc"});
  reply.body.emplace_back(SendBytes{AsBytes(memory), nullptr});
  return reply;
}

std::string Damaged(std::string_view spec) {
  HttpReply reply = TwoSteps();
  ApplyFault(Rule("GET * " + std::string(spec)).action, &reply);
  return Play(reply);
}

TEST(ReplyFaults, CutAndStallAtEveryByte) {
  const std::string whole = "abcdefgh";
  for (size_t at = 0; at < whole.size(); ++at) {
    const std::string n = std::to_string(at);
    EXPECT_EQ(Damaged("cut=" + n), whole.substr(0, at) + "F");
    EXPECT_EQ(Damaged("reset=" + n), whole.substr(0, at) + "R");
    EXPECT_EQ(Damaged("stall=" + n + ":10"), whole.substr(0, at) + "|" + whole.substr(at));
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_EQ(Damaged("flip=" + n), flipped);
  }
  EXPECT_EQ(Damaged("cut=100"), whole + "F");
  EXPECT_EQ(Damaged("stall=100:10"), whole);
  EXPECT_EQ(Damaged("flip=100"), whole);
}

TEST(ReplyFaults, CutsKeepTheAnnouncedLength) {
  HttpReply reply = TwoSteps();
  ApplyFault(Rule("GET * cut=2").action, &reply);
  EXPECT_EQ(reply.content_length, 8u);
  EXPECT_TRUE(reply.send_head);
  reply = TwoSteps();
  ApplyFault(Rule("GET * reset=head").action, &reply);
  EXPECT_FALSE(reply.send_head);
  EXPECT_EQ(Play(reply), "R");
}

TEST(ReplyFaults, CutsWithinTheHeadKeepItsBeginning) {
  HttpReply reply = TwoSteps();
  ApplyFault(Rule("GET * cut=head:20").action, &reply);
  EXPECT_TRUE(reply.send_head);
  EXPECT_EQ(reply.head_bytes, 20u);
  EXPECT_EQ(reply.content_length, 8u);
  EXPECT_EQ(Play(reply), "F");
}

TEST(ReplyFaults, Chunks) {
  EXPECT_EQ(Damaged("chunked"), "3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n");
  EXPECT_EQ(Damaged("chunked=8"), Damaged("chunked"));
  EXPECT_EQ(Damaged("chunked=4"), "3\r\nabc\r\n1\r\nd\r\nF");
  EXPECT_EQ(Damaged("chunked=0"), "F");
  HttpReply reply = TwoSteps();
  ApplyFault(Rule("GET * chunked").action, &reply);
  EXPECT_TRUE(reply.chunked);
}

TEST(ReplyFaults, AnAnnouncedEnd) {
  HttpReply reply = TwoSteps();
  ApplyFault(Rule("GET * close").action, &reply);
  EXPECT_EQ(reply.headers.Find("connection"), "close");
  EXPECT_EQ(Play(reply), "abcdefghF");
}

TEST(ReplyFaults, DelayAndRate) {
  HttpReply reply = TwoSteps();
  const auto before = std::chrono::steady_clock::now();
  ApplyFault(Rule("GET * delay-ms=5000").action, &reply);
  EXPECT_GE(reply.not_before, before + milliseconds(5000));
  EXPECT_EQ(Damaged("rate=1024"), "<1024>abcdefgh");
  LimitRate(1000, &reply);
  LimitRate(2000, &reply);
  EXPECT_EQ(Play(reply), "<1000>abcdefgh");  // the lower one holds
}

TEST(ReplyFaults, WrongRangesLieWithinTheObjectAndDiffer) {
  for (uint64_t size = 2; size < 12; ++size) {
    for (uint64_t offset = 0; offset < size; ++offset) {
      for (uint64_t length = 1; offset + length <= size; ++length) {
        const ByteRange range{offset, length};
        const ByteRange wrong = WrongRange(range, size);
        EXPECT_NE(wrong, range) << size << " " << offset << " " << length;
        EXPECT_LE(wrong.end(), size);
        EXPECT_GT(wrong.length, 0u);
        if (length < size) {
          EXPECT_EQ(wrong.length, length);
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace
