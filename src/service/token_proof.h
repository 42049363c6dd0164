#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

/// Clients and servers share a secret, which both prove to know and neither sends: HMACs over random numbers of both
/// sides. A client first asks for the server's proof, and asks for nothing else from a server that fails to give it.
/// Every request then carries a proof of its own, which holds for nothing but that request to that server. Without TLS,
/// a listener reads along, and may repeat to the same server what he has heard; he cannot ask for more.

/// These headers are for requests: the client's random number, for the server's proof; and the proof of the request.
inline constexpr std::string_view kNonceHeader = "Millrace-Nonce";
inline constexpr std::string_view kProofHeader = "Millrace-Proof";
/// A request whose proof covers its body has the SHA-256 of the body in this header.
inline constexpr std::string_view kDigestHeader = "Millrace-Digest";
/// In an answer of status 401: the request's proof was made for another server, such as the one before a restart.
inline constexpr std::string_view kStaleProofHeader = "Millrace-Stale-Proof";

/// This is the server's side. Immutable, thus thread-safe.
class TokenGate {
 public:
  enum class Verdict { kGood, kMissing, kStale, kWrong };

  /// With an empty token there is nothing to prove. `purpose` keeps proofs of one kind of server from another kind.
  TokenGate(std::string token, std::string purpose);

  bool is_open() const { return token_.empty(); }
  /// Returns the server's proof for a client's random number; "" if `nonce` is not one.
  std::string Answer(std::string_view nonce) const;
  /// Says if the value of kProofHeader, if there is one, proves `request`.
  Verdict Check(std::optional<std::string_view> proof, std::string_view request) const;

 private:
  const std::string token_;
  const std::string purpose_;
  const std::string server_nonce_;
};

/// This is the client's side for one server. It is a value.
class TokenKey {
 public:
  TokenKey(std::string token, std::string purpose);

  /// Returns the random number to ask with.
  const std::string& nonce() const { return nonce_; }
  /// Takes the server's proof. False if it is none: then the server does not know the token.
  bool Accept(std::string_view answer);
  /// Returns the value of kProofHeader for a request. Accept has returned true.
  std::string Prove(std::string_view request) const;

 private:
  std::string token_;
  std::string purpose_;
  std::string nonce_;
  std::string server_nonce_;
};

}  // namespace millrace
