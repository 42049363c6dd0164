// C14: a token is proved, and never sent.

#include "service/token_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = TokenGate::Verdict;

const std::string kToken = "0123456789abcdef";

TEST(TokenProofTest, C14BothSidesProveTheTokenWithoutSendingIt) {
  const TokenGate gate(kToken, "worker");
  TokenKey key(kToken, "worker");
  const std::string answer = gate.Answer(key.nonce());
  ASSERT_TRUE(key.Accept(answer));
  const std::string proof = key.Prove("GET /a");
  EXPECT_EQ(gate.Check(proof, "GET /a"), Verdict::kGood);
  EXPECT_THAT(key.nonce() + answer + proof, Not(HasSubstr(kToken)));
}

TEST(TokenProofTest, C14AServerWithoutTheTokenIsNotAsked) {
  TokenKey key(kToken, "worker");
  EXPECT_FALSE(key.Accept(TokenGate("another token 123", "worker").Answer(key.nonce())));
  EXPECT_FALSE(key.Accept(TokenGate(kToken, "group").Answer(key.nonce()))) << "one of another kind";
  EXPECT_FALSE(key.Accept(TokenGate("", "worker").Answer(key.nonce())));
  const TokenGate gate(kToken, "worker");
  EXPECT_FALSE(key.Accept(gate.Answer(TokenKey(kToken, "worker").nonce()))) << "what another client was told";
  std::string answer = gate.Answer(key.nonce());
  EXPECT_FALSE(key.Accept(answer.substr(1)));
  answer.back() = answer.back() == '0' ? '1' : '0';
  EXPECT_FALSE(key.Accept(answer));
  EXPECT_FALSE(key.Accept(""));
  EXPECT_FALSE(TokenKey("", "worker").Accept(answer));
}

TEST(TokenProofTest, C14AProofHoldsForItsRequestAndServerOnly) {
  const TokenGate gate(kToken, "worker");
  TokenKey key(kToken, "worker");
  ASSERT_TRUE(key.Accept(gate.Answer(key.nonce())));
  std::string proof = key.Prove("GET /a");
  EXPECT_EQ(gate.Check(proof, "GET /b"), Verdict::kWrong);
  EXPECT_EQ(gate.Check(std::nullopt, "GET /a"), Verdict::kMissing);
  EXPECT_EQ(TokenGate(kToken, "worker").Check(proof, "GET /a"), Verdict::kStale);
  proof.back() = proof.back() == '0' ? '1' : '0';
  EXPECT_EQ(gate.Check(proof, "GET /a"), Verdict::kWrong);
  for (const std::string& bad : {std::string(), std::string(130, 'z'), proof.substr(1), proof + "0"}) {
    EXPECT_EQ(gate.Check(bad, "GET /a"), Verdict::kWrong) << bad;
  }
  // The server's own proof is none of a client.
  const std::string answer = gate.Answer(key.nonce());
  EXPECT_EQ(gate.Check(key.nonce() + " " + answer, ""), Verdict::kWrong);
}

TEST(TokenProofTest, WithoutATokenThereIsNothingToProve) {
  const TokenGate gate("", "worker");
  EXPECT_EQ(gate.Check(std::nullopt, "GET /a"), Verdict::kGood);
  EXPECT_EQ(gate.Answer(std::string(32, 'a')), "");
  EXPECT_EQ(TokenGate(kToken, "worker").Answer("no hex"), "");
}

}  // namespace
}  // namespace millrace
