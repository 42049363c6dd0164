#include "supervisor/exit_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Found(const std::vector<ExitRule>& rules, const ExitFacts& facts) {
  const ExitRule* const rule = FindExitRule(rules, facts);
  return rule == nullptr ? "none" : rule->restart ? "retry" : "exit";
}

std::vector<ExitRule> Rules(std::initializer_list<const char*> texts) {
  std::vector<ExitRule> rules;
  for (const char* text : texts) {
    absl::StatusOr<ExitRule> rule = ParseExitRule(text);
    EXPECT_TRUE(rule.ok()) << rule.status();
    if (rule.ok()) rules.push_back(*std::move(rule));
  }
  return rules;
}

TEST(ExitRules, TheFirstThatMatchesCounts) {
  const std::vector<ExitRule> rules = Rules({"code=64..78:exit", "code=13*:RETRY", "reason=Hang*,code=124:exit"});
  EXPECT_EQ(Found(rules, {.code = 63}), "none");
  EXPECT_EQ(Found(rules, {.code = 64}), "exit");
  EXPECT_EQ(Found(rules, {.code = 78}), "exit");
  EXPECT_EQ(Found(rules, {.code = 79}), "none");
  EXPECT_EQ(Found(rules, {.code = 13}), "retry");
  EXPECT_EQ(Found(rules, {.code = 137}), "retry");
  EXPECT_EQ(Found(rules, {.code = 113}), "none");
  EXPECT_EQ(Found(rules, {.code = 124}), "none");  // all conditions must match
  EXPECT_EQ(Found(rules, {.code = 124, .reason = "Hang: no output"}), "exit");
  EXPECT_EQ(Found(Rules({"code=1:retry", "code=1*:exit"}), {.code = 1}), "retry");
}

TEST(ExitRules, BatchJobDefinitionsArePasted) {
  // This is the idiom of AWS's documentation for spot instances.
  const auto strategy = ParseRetryStrategy(R"({"jobDefinitionName": "train", "retryStrategy": {"attempts": 5,
      "evaluateOnExit": [{"onStatusReason": "Host EC2*", "action": "RETRY"}, {"onReason": "*", "action": "exit"}]}})");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  EXPECT_EQ(strategy->attempts, 5);
  ASSERT_THAT(strategy->rules, SizeIs(2));
  EXPECT_EQ(Found(strategy->rules, {.code = 1}), "exit");  // "*" matches also no reason
  EXPECT_EQ(Found(strategy->rules, {.code = 1, .status_reason = "Host EC2 (instance i-1) terminated."}), "retry");
  const auto list = ParseRetryStrategy(R"([{"onExitCode": "137", "onReason": "OutOfMemory*", "action": "EXIT"}])");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_FALSE(list->attempts);
  EXPECT_EQ(Found(list->rules, {.code = 137}), "none");
  EXPECT_EQ(Found(list->rules, {.code = 137, .reason = "OutOfMemoryError: killed"}), "exit");
  EXPECT_EQ(ParseRetryStrategy(R"({"attempts": 1})")->attempts, 1);
}

TEST(ExitRules, MistakesAreNamed) {
  for (const auto& [text, why] :
       std::vector<std::pair<const char*, const char*>>{{"code=1", "no action"},
                                                        {"code=1:restart", "no action; give retry or exit"},
                                                        {"code=300:exit", "no exit code"},
                                                        {"code=2..1:exit", "no range"},
                                                        {"code=a:exit", "no exit code"},
                                                        {"code=:exit", "1 to 512"},
                                                        {"status=1:exit", "none of code="},
                                                        {":exit", "none of code="},
                                                        {"reason=a*b:exit", "not at its end"}}) {
    EXPECT_THAT(std::string(ParseExitRule(text).status().message()), HasSubstr(why)) << text;
  }
  for (const auto& [text, why] : std::vector<std::pair<const char*, const char*>>{
           {"", "not JSON"},
           {"{}", "neither"},
           {R"({"attempts": 0})", "not a number from 1"},
           {R"({"attempts": "3"})", "not a number from 1"},
           {R"({"evaluateOnExit": {}})", "not JSON"},
           {R"([1])", "rule 1: it is not a JSON object"},
           {R"([{"onExitCode": "1"}])", "rule 1: it has no action"},
           {R"([{"onExitCode": 1, "action": "EXIT"}])", "onExitCode is not a string"},
           {R"([{"action": "EXIT"}, {"onexitcode": "1", "action": "EXIT"}])", "rule 2: 'onexitcode' is none"}}) {
    EXPECT_THAT(std::string(ParseRetryStrategy(text).status().message()), HasSubstr(why)) << text;
  }
}

}  // namespace
}  // namespace millrace
