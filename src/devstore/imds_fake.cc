#include "devstore/imds_fake.h"

#include <optional>

#include "base/crypto.h"
#include "devstore/s3_request.h"

namespace millrace {

namespace {

constexpr std::string_view kRoot = "/imds/";
constexpr std::string_view kDocuments = "/latest/meta-data/";
constexpr const char* kTtlField = "X-aws-ec2-metadata-token-ttl-seconds";
constexpr size_t kMaxTokens = 10'000;

HttpReply Plain(int status, std::string text = {}) {
  HttpReply reply;
  reply.status = status;
  reply.headers.Add("Content-Type", "text/plain");
  reply.body.push_back(SendText{std::move(text)});
  return reply;
}

}  // namespace

HttpReply ImdsFake::Answer(const HttpRequestHead& head, absl::Time now) {
  const std::string_view target = std::string_view(head.target).substr(kRoot.size());
  const size_t slash = target.find('/');
  if (slash == std::string_view::npos) return Plain(404);
  const std::string instance(target.substr(0, slash));
  const std::string_view path = target.substr(slash);
  if (head.method == "POST" && path.starts_with("/interrupt?seconds=")) {
    const auto seconds = ParseDecimal(path.substr(path.find('=') + 1), 0, 3600);
    if (!seconds) return Plain(400, "seconds must be 0 to 3600\n");
    return Plain(ec2_.Interrupt(instance, now + absl::Seconds(*seconds)) ? 200 : 404);
  }
  if (head.method == "PUT" && path == "/latest/api/token") return GiveToken(head, instance, now);
  if (head.method != "GET") return Plain(405);
  if (!Knows(head, instance, now)) return Plain(401);
  if (!path.starts_with(kDocuments)) return Plain(404);
  const std::optional<std::string> document = ec2_.Metadata(instance, path.substr(kDocuments.size()));
  return document ? Plain(200, *document) : Plain(404);
}

HttpReply ImdsFake::GiveToken(const HttpRequestHead& head, const std::string& instance, absl::Time now) {
  // A request that came through a proxy has this header; the service gives no tokens to the outside.
  if (head.headers.Has("X-Forwarded-For")) return Plain(403);
  constexpr uint64_t kMaxTtl = 21'600;
  const auto ttl = ParseDecimal(head.headers.Find(kTtlField).value_or(""), 1, kMaxTtl);
  if (!ttl) return Plain(400);
  if (!ec2_.Metadata(instance, "instance-id")) return Plain(404);
  const std::string token = RandomHex(20) + "==";
  {
    std::lock_guard lock(mutex_);
    if (tokens_.size() >= kMaxTokens) tokens_.clear();
    tokens_[token] = {instance, now + absl::Seconds(*ttl)};
  }
  HttpReply reply = Plain(200, token);
  reply.headers.Add(kTtlField, std::to_string(*ttl));
  return reply;
}

bool ImdsFake::Knows(const HttpRequestHead& head, const std::string& instance, absl::Time now) {
  const std::string token(head.headers.Find("X-aws-ec2-metadata-token").value_or(""));
  std::lock_guard lock(mutex_);
  const auto found = tokens_.find(token);
  return found != tokens_.end() && found->second.instance == instance && now < found->second.ends;
}

}  // namespace millrace
