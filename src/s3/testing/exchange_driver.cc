#include "s3/testing/exchange_driver.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace {

S3Config TestS3Config() {
  S3Config config;
  config.endpoint_url = "http://store.test:9000";
  config.credentials = {"test-key", "test-secret", ""};
  return config;
}

void ExchangeDriver::Run(S3Exchange& exchange) {
  S3Step step = exchange.Begin();
  while (step.kind != S3Step::Kind::kDone) {
    if (step.kind == S3Step::Kind::kWait) {
      waits.push_back(step.wait);
      now += step.wait;
    }
    if (!exchange.TakeCredentials(now)) {
      exchange.Abandon(absl::UnauthenticatedError("the driver waits for no credentials"));
      break;
    }
    for (Pacer::Turn turn = exchange.TakeTurn(now); turn.away; turn = exchange.TakeTurn(now)) now += turn.wait;
    HttpRequest request = exchange.Request(now);
    HttpResult result = Call(exchange, request);
    requests.push_back(std::move(request));
    step = exchange.OnResult(std::move(result), now);
  }
  if (finish) exchange.Finish();
}

HttpResult ExchangeDriver::Call(S3Exchange& exchange, const HttpRequest& request) {
  ScriptedAnswer answer = store_(request);
  HttpResult result;
  result.error = answer.error;
  result.detail = "scripted failure";
  if (answer.status == 0) return result;

  HttpResponseHead head{answer.status, "", std::move(answer.headers), std::nullopt};
  if (answer.has_length) {
    head.content_length = answer.body.size();
    // A HEAD answer announces a body that does not come.
    if (const auto announced = head.headers.Find("content-length"))
      head.content_length = std::stoull(std::string(*announced));
  }
  const HttpBodySink sink = exchange.OnHead(head);
  if (sink.kind == HttpBodySink::Kind::kRefuse) {
    result.error = HttpErrorKind::kRefused;
    return result;
  }
  std::string body = request.head.method == "HEAD" ? "" : answer.body.substr(0, answer.cut);
  result.wire_bytes = body.size();
  if (sink.kind == HttpBodySink::Kind::kText) {
    result.text = body.substr(0, sink.text_limit);
    if (body.size() > sink.text_limit) result.error = HttpErrorKind::kTooLarge;
    return result;
  }
  body.erase(0, std::min<uint64_t>(sink.skip, body.size()));
  result.body_bytes = std::min(body.size(), sink.buffer.size());
  result.more = body.size() > sink.buffer.size();
  if (result.body_bytes > 0) std::memcpy(sink.buffer.data(), body.data(), result.body_bytes);
  if (result.body_bytes > 0 && sink.came) {
    sink.came(result.body_bytes / 3);
    sink.came(result.body_bytes);
    if (answer.came) answer.came();
  }
  return result;
}

}  // namespace millrace
