#include "service/token_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "base/hex.h"

namespace millrace {

namespace {

constexpr size_t kNonceBytes = 16;
constexpr size_t kNonceChars = 2 * kNonceBytes;
constexpr size_t kProofChars = 2 * sizeof(Sha256Digest);

bool IsHexOf(std::string_view text, size_t chars) {
  return text.size() == chars && std::ranges::all_of(text, [](char c) { return HexValue(c) >= 0; });
}

// The parts have no line feeds but the last, so that two lists of parts never have one text.
std::string ProofOf(const std::string& token, std::string_view side, std::string_view purpose, std::string_view client,
                    std::string_view server, std::string_view request) {
  const std::string text =
      fmt::format("millrace token proof 1\n{}\n{}\n{}\n{}\n{}", side, purpose, client, server, request);
  return HexEncode(HmacSha256(AsBytes(token), AsBytes(text)));
}

}  // namespace

TokenGate::TokenGate(std::string token, std::string purpose)
    : token_(std::move(token)), purpose_(std::move(purpose)), server_nonce_(RandomHex(kNonceBytes)) {}

std::string TokenGate::Answer(std::string_view nonce) const {
  if (is_open() || !IsHexOf(nonce, kNonceChars)) return "";
  return server_nonce_ + " " + ProofOf(token_, "server", purpose_, nonce, server_nonce_, "");
}

TokenGate::Verdict TokenGate::Check(std::optional<std::string_view> proof, std::string_view request) const {
  if (is_open()) return Verdict::kGood;
  if (!proof) return Verdict::kMissing;
  // The header holds CLIENT-NONCE SERVER-NONCE PROOF.
  if (proof->size() != 2 * (kNonceChars + 1) + kProofChars) return Verdict::kWrong;
  const std::string_view client = proof->substr(0, kNonceChars);
  const std::string_view server = proof->substr(kNonceChars + 1, kNonceChars);
  if (!IsHexOf(client, kNonceChars) || !IsHexOf(server, kNonceChars)) return Verdict::kWrong;
  if (server != server_nonce_) return Verdict::kStale;
  const std::string expected = ProofOf(token_, "client", purpose_, client, server, request);
  return EqualConstantTime(proof->substr(2 * (kNonceChars + 1)), expected) ? Verdict::kGood : Verdict::kWrong;
}

TokenKey::TokenKey(std::string token, std::string purpose)
    : token_(std::move(token)), purpose_(std::move(purpose)), nonce_(RandomHex(kNonceBytes)) {}

bool TokenKey::Accept(std::string_view answer) {
  if (token_.empty() || answer.size() != kNonceChars + 1 + kProofChars) return false;
  const std::string_view server = answer.substr(0, kNonceChars);
  if (!IsHexOf(server, kNonceChars)) return false;
  const std::string expected = ProofOf(token_, "server", purpose_, nonce_, server, "");
  if (!EqualConstantTime(answer.substr(kNonceChars + 1), expected)) return false;
  server_nonce_ = server;
  return true;
}

std::string TokenKey::Prove(std::string_view request) const {
  return fmt::format("{} {} {}", nonce_, server_nonce_,
                     ProofOf(token_, "client", purpose_, nonce_, server_nonce_, request));
}

}  // namespace millrace
