#include "aws/credential_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "aws/xml_document.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxSecretBytes = 32 << 10;
// Numbers beyond are no times, and absl's arithmetic on them would give "infinite".
constexpr int64_t kMaxUnixMillis = 253'402'300'799'000;  // year 9999

absl::StatusOr<Json> ParseObject(std::string_view text) {
  // It must not throw: exceptions of nlohmann quote the document.
  Json document = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  return document;
}

/// Returns "" when it is not there or not a string.
std::string Text(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::optional<absl::Time> ParseTime(std::string text) {
  // The AWS CLI once wrote "2026-01-01T00:00:00UTC".
  if (text.ends_with("UTC")) text.replace(text.size() - 3, 3, "Z");
  constexpr size_t kDateBytes = 10;
  if (text.size() > kDateBytes && text[kDateBytes] == ' ') text[kDateBytes] = 'T';  // as Python prints a time
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return std::nullopt;
  if (time == absl::InfiniteFuture() || time == absl::InfinitePast()) return std::nullopt;
  return time;
}

absl::StatusOr<ExpiringCredentials> Checked(ExpiringCredentials credentials) {
  if (credentials.keys.access_key.empty()) return absl::InvalidArgumentError("it has no access key");
  if (credentials.keys.secret_key.empty()) return absl::InvalidArgumentError("it has no secret key");
  RETURN_IF_ERROR(CheckSecret(credentials.keys.access_key, "the access key"));
  RETURN_IF_ERROR(CheckSecret(credentials.keys.secret_key, "the secret key"));
  RETURN_IF_ERROR(CheckSecret(credentials.keys.session_token, "the session token"));
  return credentials;
}

absl::StatusOr<ExpiringCredentials> FromJson(const Json& object, const char* token_name) {
  ExpiringCredentials credentials;
  credentials.keys = {Text(object, "AccessKeyId"), Text(object, "SecretAccessKey"), Text(object, token_name)};
  if (object.contains("Expiration") && !object["Expiration"].is_null()) {
    const std::optional<absl::Time> expires = ParseTime(Text(object, "Expiration"));
    if (!expires) return absl::InvalidArgumentError("its Expiration is not a time");
    credentials.expires = *expires;
  }
  return Checked(std::move(credentials));
}

absl::StatusOr<ExpiringCredentials> KeysOf(const XmlElement& keys) {
  ExpiringCredentials credentials;
  credentials.keys = {std::string(keys.Text("AccessKeyId")), std::string(keys.Text("SecretAccessKey")),
                      std::string(keys.Text("SessionToken"))};
  const std::optional<absl::Time> expires = ParseTime(std::string(keys.Text("Expiration")));
  if (!expires) return absl::InvalidArgumentError("it has no Expiration that is a time");
  credentials.expires = *expires;
  return Checked(std::move(credentials));
}

}  // namespace

absl::Status CheckSecret(std::string_view value, std::string_view name) {
  if (value.size() > kMaxSecretBytes) {
    return absl::InvalidArgumentError(fmt::format("{} is longer than {} bytes", name, kMaxSecretBytes));
  }
  if (!std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c <= '~'; })) {
    return absl::InvalidArgumentError(
        fmt::format("{} contains a space or a control character; check how it was copied", name));
  }
  return absl::OkStatus();
}

absl::Status CheckToken(std::string_view value, std::string_view name) {
  if (value.size() > kMaxSecretBytes)
    return absl::InvalidArgumentError(fmt::format("{} is longer than {} bytes", name, kMaxSecretBytes));
  if (std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; })) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} contains a control character; check how it was copied", name));
}

absl::StatusOr<ExpiringCredentials> ParseStsXml(std::string_view xml) {
  const absl::StatusOr<XmlDocument> document = XmlDocument::Parse(xml);
  if (!document.ok()) return absl::InvalidArgumentError("it is not XML");
  const std::string_view name = document->root().name();
  if (name != "AssumeRoleResponse" && name != "AssumeRoleWithWebIdentityResponse")
    return absl::InvalidArgumentError("it is not an answer of STS");
  const std::string result = fmt::format("{}Result", name.substr(0, name.size() - std::string_view("Response").size()));
  return KeysOf(document->root().Child(result.c_str()).Child("Credentials"));
}

absl::StatusOr<ExpiringCredentials> ParseCreateSessionXml(std::string_view xml) {
  const absl::StatusOr<XmlDocument> document = XmlDocument::Parse(xml);
  if (!document.ok()) return absl::InvalidArgumentError("it is not XML");
  if (document->root().name() != "CreateSessionResult")
    return absl::InvalidArgumentError("it is not an XML <CreateSessionResult>");
  return KeysOf(document->root().Child("Credentials"));
}

StsError ParseStsErrorXml(std::string_view xml) {
  const absl::StatusOr<XmlDocument> document = XmlDocument::Parse(xml);
  if (!document.ok() || document->root().name() != "ErrorResponse") return {};
  const XmlElement error = document->root().Child("Error");
  return {std::string(error.Text("Code")), std::string(error.Text("Message"))};
}

absl::StatusOr<ExpiringCredentials> ParseMetadataJson(std::string_view json) {
  ASSIGN_OR_RETURN(const Json object, ParseObject(json));
  // The instance metadata service says so within a 200 when the role cannot be assumed.
  if (const std::string code = Text(object, "Code"); !code.empty() && code != "Success")
    return absl::InvalidArgumentError("its Code is not Success");
  return FromJson(object, "Token");
}

absl::StatusOr<ExpiringCredentials> ParseProcessJson(std::string_view json) {
  ASSIGN_OR_RETURN(const Json object, ParseObject(json));
  const auto version = object.find("Version");
  if (version == object.end() || !version->is_number_integer() || *version != 1)
    return absl::InvalidArgumentError("its Version is not 1");
  return FromJson(object, "SessionToken");
}

absl::StatusOr<ExpiringCredentials> ParseSsoRoleJson(std::string_view json) {
  ASSIGN_OR_RETURN(const Json object, ParseObject(json));
  const auto role = object.find("roleCredentials");
  if (role == object.end() || !role->is_object()) return absl::InvalidArgumentError("it has no roleCredentials");
  ExpiringCredentials credentials;
  credentials.keys = {Text(*role, "accessKeyId"), Text(*role, "secretAccessKey"), Text(*role, "sessionToken")};
  const auto expiration = role->find("expiration");
  if (expiration == role->end() || !expiration->is_number_integer())
    return absl::InvalidArgumentError("it has no expiration");
  const bool too_large = expiration->is_number_unsigned() && expiration->get<uint64_t>() > kMaxUnixMillis;
  if (too_large || expiration->get<int64_t>() < 0 || expiration->get<int64_t>() > kMaxUnixMillis)
    return absl::InvalidArgumentError("its expiration is not a time");
  credentials.expires = absl::FromUnixMillis(expiration->get<int64_t>());
  return Checked(std::move(credentials));
}

absl::StatusOr<SsoToken> ParseSsoTokenJson(std::string_view json) {
  ASSIGN_OR_RETURN(const Json object, ParseObject(json));
  SsoToken token;
  token.access_token = Text(object, "accessToken");
  if (token.access_token.empty()) return absl::InvalidArgumentError("it has no accessToken");
  RETURN_IF_ERROR(CheckSecret(token.access_token, "its accessToken"));
  const std::optional<absl::Time> expires = ParseTime(Text(object, "expiresAt"));
  if (!expires) return absl::InvalidArgumentError("its expiresAt is not a time");
  token.expires = *expires;
  token.refresh_token = Text(object, "refreshToken");
  token.client_id = Text(object, "clientId");
  token.client_secret = Text(object, "clientSecret");
  if (!token.refresh_token.empty() && !token.client_id.empty() && !token.client_secret.empty()) {
    token.registration_expires = ParseTime(Text(object, "registrationExpiresAt")).value_or(token.registration_expires);
  }
  return token;
}

std::string WriteSsoRenewalJson(const SsoToken& token) {
  const Json request{{"grantType", "refresh_token"},
                     {"clientId", token.client_id},
                     {"clientSecret", token.client_secret},
                     {"refreshToken", token.refresh_token}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<RenewedSsoToken> RenewSsoTokenJson(std::string_view file, std::string_view answer, absl::Time now) {
  ASSIGN_OR_RETURN(Json cached, ParseObject(file));
  ASSIGN_OR_RETURN(const Json object, ParseObject(answer));
  RenewedSsoToken renewed{Text(object, "accessToken"), {}};
  if (renewed.access_token.empty()) return absl::InvalidArgumentError("it has no accessToken");
  RETURN_IF_ERROR(CheckSecret(renewed.access_token, "its accessToken"));
  constexpr int64_t kLongest = int64_t{10} * 365 * 24 * 3600;
  const auto seconds = object.find("expiresIn");
  if (seconds == object.end() || !seconds->is_number_integer() || *seconds < 1 || *seconds > kLongest)
    return absl::InvalidArgumentError("its expiresIn is not a time");
  cached["accessToken"] = renewed.access_token;
  cached["expiresAt"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now + absl::Seconds(seconds->get<int64_t>()), absl::UTCTimeZone());
  if (std::string refresh = Text(object, "refreshToken"); !refresh.empty()) cached["refreshToken"] = std::move(refresh);
  renewed.file = cached.dump(-1, ' ', false, Json::error_handler_t::replace);
  return renewed;
}

}  // namespace millrace
