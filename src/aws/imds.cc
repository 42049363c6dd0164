#include "aws/imds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "aws/credential_documents.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kImdsLimit{2};  // it is on this machine
constexpr absl::Duration kTokenTtl = absl::Hours(6);
constexpr std::string_view kTtlHeader = "X-aws-ec2-metadata-token-ttl-seconds";

}  // namespace

TextRequest ImdsSession::Request(std::string_view method, std::string_view path) const {
  TextRequest request{.endpoint = service_.server, .head = {std::string(method), service_.base_path, {}}};
  request.limit = kImdsLimit;
  request.head.target.append(path);
  return request;
}

TextRequest ImdsSession::TokenRequest() const {
  TextRequest request = Request("PUT", "/latest/api/token");
  request.head.headers.Add(kTtlHeader, std::to_string(absl::ToInt64Seconds(kTokenTtl)));
  return request;
}

absl::Status ImdsSession::TakeToken(std::string_view text, const HttpHeaders& headers, absl::Time now) {
  const std::string_view token = ToStd(absl::StripAsciiWhitespace(ToAbsl(text)));
  if (token.empty()) return absl::UnauthenticatedError("its token is empty");
  RETURN_IF_ERROR(CheckSecret(token, "its token"));
  int64_t seconds = 0;
  const bool has_ttl = absl::SimpleAtoi(ToAbsl(headers.Find(kTtlHeader).value_or("")), &seconds);
  token_ = token;
  expires_ = now + (has_ttl ? std::clamp(absl::Seconds(seconds), absl::Seconds(1), kTokenTtl) : kTokenTtl);
  return absl::OkStatus();
}

TextRequest ImdsSession::ReadRequest(std::string_view path) const {
  TextRequest request = Request("GET", path);
  request.head.headers.Add("X-aws-ec2-metadata-token", token_);
  return request;
}

}  // namespace millrace
