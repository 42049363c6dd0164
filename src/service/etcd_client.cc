#include "service/etcd_client.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "base/file_text.h"
#include "base/process.h"
#include "net/text_answer.h"

namespace millrace {

namespace {

using EtcdJson = nlohmann::json;

constexpr std::chrono::milliseconds kEtcdPatience{3000};
constexpr size_t kMaxEtcdAnswer = size_t{16} << 20;

HttpClientOptions EtcdOptions(const EtcdAccess& access) {
  HttpClientOptions options;
  options.max_connections = 2;
  options.connect_timeout = options.first_byte_timeout = options.stall_timeout = kEtcdPatience;
  options.ca_file = access.ca_file;
  options.only_ca_file = !access.ca_file.empty();
  options.identity = access.identity;
  return options;
}

std::string InBase64(std::string_view text) {
  std::string encoded;
  absl::Base64Escape(absl::string_view(text.data(), text.size()), &encoded);
  return encoded;
}

// etcd writes 64-bit numbers as texts.
int64_t NumberOf(const EtcdJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return 0;
  const std::string& text = found->get_ref<const std::string&>();
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string BytesOf(const EtcdJson& object, const char* name) {
  const auto found = object.find(name);
  std::string bytes;
  if (found == object.end() || !found->is_string()) return bytes;
  if (!absl::Base64Unescape(found->get_ref<const std::string&>(), &bytes)) bytes.clear();
  return bytes;
}

absl::StatusOr<EtcdJson> ParseEtcd(const std::string& text) {
  EtcdJson json = EtcdJson::parse(text, nullptr, false);
  if (!json.is_object()) return absl::UnavailableError("what etcd answers is no JSON");
  return json;
}

// Codes of gRPC, which are those of absl::Status.
absl::Status ErrorOf(int http, const std::string& text) {
  const EtcdJson json = EtcdJson::parse(text, nullptr, false);
  std::string message = json.is_object() && json.contains("message") && json["message"].is_string()
                            ? json["message"].get<std::string>()
                            : fmt::format("status {}", http);
  int64_t code = json.is_object() ? NumberOf(json, "code") : 0;
  if (code <= 0 || code > static_cast<int64_t>(absl::StatusCode::kUnauthenticated)) {
    code = static_cast<int64_t>(absl::StatusCode::kUnavailable);
  }
  return absl::Status(static_cast<absl::StatusCode>(code), fmt::format("etcd: {}", message));
}

absl::StatusOr<std::string> ReadPemOf(const char* variable) {
  const std::string path = EnvironmentValue(variable);
  absl::StatusOr<std::string> pem = ReadFileText(path);
  return pem.ok() ? pem : absl::NotFoundError(fmt::format("{} of {} cannot be read", path, variable));
}

}  // namespace

absl::StatusOr<EtcdAccess> EtcdAccess::FromEnvironment() {
  EtcdAccess access;
  const std::string user = EnvironmentValue("ETCDCTL_USER");
  const size_t colon = user.find(':');
  access.user = user.substr(0, colon);
  if (colon != user.npos) access.password = user.substr(colon + 1);
  access.ca_file = EnvironmentValue("ETCDCTL_CACERT");
  const bool has_certificate = !EnvironmentValue("ETCDCTL_CERT").empty();
  if (has_certificate != !EnvironmentValue("ETCDCTL_KEY").empty())
    return absl::InvalidArgumentError("ETCDCTL_CERT and ETCDCTL_KEY are for use together");
  if (!has_certificate) return access;
  access.identity.emplace();
  ASSIGN_OR_RETURN(access.identity->certificate_pem, ReadPemOf("ETCDCTL_CERT"));
  ASSIGN_OR_RETURN(access.identity->key_pem, ReadPemOf("ETCDCTL_KEY"));
  return access;
}

EtcdClient::EtcdClient(Runtime& runtime, HttpEndpoint endpoint, EtcdAccess access)
    : runtime_(runtime),
      endpoint_(std::move(endpoint)),
      access_(std::move(access)),
      client_(runtime.loops(), EtcdOptions(access_)) {}

absl::StatusOr<std::string> EtcdClient::PostOnce(std::string_view path, const std::string& body) {
  TextRequest request{.endpoint = endpoint_, .head = {"POST", std::string(path), {}}, .body = body};
  request.fresh_connection = false;
  request.max_text = kMaxEtcdAnswer;
  request.head.headers.Add("Content-Type", "application/json");
  if (!token_.empty()) request.head.headers.Add("Authorization", token_);
  TextAnswer answer = AskForText(client_, runtime_.loops().Next(), std::move(request)).get();
  if (answer.result.error != HttpErrorKind::kNone) {
    return absl::UnavailableError(
        fmt::format("etcd at {}:{} does not answer ({})", endpoint_.host, endpoint_.port, answer.result.detail));
  }
  if (answer.head.status != 200) return ErrorOf(answer.head.status, answer.result.text);
  return std::move(answer.result.text);
}

absl::Status EtcdClient::Authenticate() {
  token_.clear();
  const EtcdJson body = {{"name", access_.user}, {"password", access_.password}};
  ASSIGN_OR_RETURN(const std::string text,
                   PostOnce("/v3/auth/authenticate", body.dump(-1, ' ', false, EtcdJson::error_handler_t::replace)));
  ASSIGN_OR_RETURN(const EtcdJson json, ParseEtcd(text));
  if (!json.contains("token") || !json["token"].is_string()) return absl::UnavailableError("etcd gives no token");
  token_ = json["token"].get<std::string>();
  return absl::OkStatus();
}

absl::StatusOr<std::string> EtcdClient::Post(std::string_view path, std::string body) {
  const bool has_session = !token_.empty();
  if (!access_.user.empty() && !has_session) RETURN_IF_ERROR(Authenticate());
  absl::StatusOr<std::string> text = PostOnce(path, body);
  // Sessions end after a few minutes without use, and with etcd.
  if (absl::IsUnauthenticated(text.status()) && has_session) {
    RETURN_IF_ERROR(Authenticate());
    text = PostOnce(path, body);
  }
  return text;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> EtcdClient::List(const std::string& prefix) {
  std::string end = prefix;
  ++end.back();  // prefixes end with a character that has a next one
  const EtcdJson body = {{"key", InBase64(prefix)}, {"range_end", InBase64(end)}};
  ASSIGN_OR_RETURN(const std::string text, Post("/v3/kv/range", body.dump()));
  ASSIGN_OR_RETURN(const EtcdJson json, ParseEtcd(text));
  std::vector<std::pair<std::string, std::string>> found;
  const auto entries = json.find("kvs");
  if (entries == json.end() || !entries->is_array()) return found;
  for (const EtcdJson& entry : *entries) {
    if (entry.is_object()) found.emplace_back(BytesOf(entry, "key"), BytesOf(entry, "value"));
  }
  return found;
}

absl::StatusOr<int64_t> EtcdClient::Grant(int64_t seconds) {
  ASSIGN_OR_RETURN(const std::string text, Post("/v3/lease/grant", EtcdJson{{"TTL", seconds}}.dump()));
  ASSIGN_OR_RETURN(const EtcdJson json, ParseEtcd(text));
  const int64_t lease = NumberOf(json, "ID");
  if (lease == 0) return absl::UnavailableError("etcd grants no lease");
  return lease;
}

absl::Status EtcdClient::Put(std::string_view key, std::string_view value, int64_t lease) {
  const EtcdJson body = {{"key", InBase64(key)}, {"value", InBase64(value)}, {"lease", lease}};
  return Post("/v3/kv/put", body.dump()).status();
}

absl::Status EtcdClient::KeepAlive(int64_t lease) {
  ASSIGN_OR_RETURN(const std::string text, Post("/v3/lease/keepalive", EtcdJson{{"ID", lease}}.dump()));
  ASSIGN_OR_RETURN(const EtcdJson json, ParseEtcd(text));
  const auto result = json.find("result");
  if (result == json.end() || !result->is_object() || NumberOf(*result, "TTL") <= 0) {
    return absl::NotFoundError("etcd: the lease has ended");
  }
  return absl::OkStatus();
}

absl::Status EtcdClient::Revoke(int64_t lease) {
  return Post("/v3/lease/revoke", EtcdJson{{"ID", lease}}.dump()).status();
}

}  // namespace millrace
