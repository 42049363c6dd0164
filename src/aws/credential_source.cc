#include "aws/credential_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "aws/sigv4.h"

namespace millrace {

namespace {

bool MayPass(int http_status) {
  return http_status == 408 || http_status == 429 || http_status >= 500;
}

void Hide(std::string& text, std::string_view secret) {
  // Shorter ones would hide common words.
  constexpr size_t kShortest = 4;
  if (secret.size() < kShortest) return;
  for (size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at))
    text.replace(at, secret.size(), "***");
}

}  // namespace

bool CredentialSource::Passing(const CredentialInput& input) const {
  return !input.status.ok() || MayPass(input.http_status);
}

std::string QuoteWithout(const std::vector<std::string_view>& secrets, std::string_view text) {
  std::string out(text);
  for (const std::string_view secret : secrets) {
    Hide(out, secret);
    Hide(out, UriEncode(secret, /*keep_slash=*/false));
  }
  out.resize(std::min<size_t>(out.size(), 300));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return out;
}

absl::Status RefusedBy(std::string_view who, const CredentialInput& input, std::string_view remedy) {
  if (!input.status.ok())
    return absl::UnavailableError(fmt::format("{}: {}; {}", who, ToStd(input.status.message()), remedy));
  const auto code = MayPass(input.http_status) ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnauthenticated;
  return absl::Status(code, fmt::format("{} answered HTTP {}; {}", who, input.http_status, remedy));
}

absl::StatusOr<std::string> TokenOf(const CredentialInput& file, std::string_view what, CheckOfToken check) {
  // The message of a status of the file system names the path, never what the file contains.
  if (!file.status.ok()) {
    return absl::UnauthenticatedError(
        fmt::format("{} cannot be read ({}); check that the file exists and this user may read it", what,
                    ToStd(file.status.message())));
  }
  const std::string token(ToStd(absl::StripAsciiWhitespace(file.text)));
  if (token.empty()) return absl::UnauthenticatedError(fmt::format("{} is empty", what));
  RETURN_IF_ERROR(check(token, what));
  return token;
}

}  // namespace millrace
