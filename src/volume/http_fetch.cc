#include "volume/http_fetch.h"

#include <fmt/format.h>

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "net/http_date.h"

namespace millrace {

namespace {

constexpr size_t kMaxAnswerText = 16 << 20;

/// One call. All on its loop's thread.
class TextFetch final : public HttpResponseHandler {
 public:
  void Start(EventLoop& loop, HttpClient& http, HttpRequest request, std::chrono::milliseconds limit) {
    timer_.emplace(loop);
    call_ = http.Start(loop, std::move(request), *this);
    timer_->Start(limit, [this] {
      late_ = true;
      const std::shared_ptr<HttpCall> call = call_;
      if (call) call->Cancel();
    });
  }

  std::future<absl::StatusOr<FetchAnswer>> answer() { return promise_.get_future(); }

  void OnPhase(HttpPhase) override {}

  HttpBodySink OnHead(const HttpResponseHead& head) override {
    answer_.status = head.status;
    answer_.date = ParseHttpDate(head.headers.Find("date").value_or(""));
    return HttpBodySink::Text(kMaxAnswerText);
  }

  void OnDone(HttpResult result) override {
    timer_.reset();
    call_.reset();
    if (late_) return promise_.set_value(absl::UnavailableError("no answer in time"));
    if (result.error != HttpErrorKind::kNone) {
      return promise_.set_value(
          absl::UnavailableError(result.detail.empty() ? "the connection failed" : result.detail));
    }
    answer_.text = std::move(result.text);
    promise_.set_value(std::move(answer_));
  }

 private:
  std::promise<absl::StatusOr<FetchAnswer>> promise_;
  std::optional<Timer> timer_;
  std::shared_ptr<HttpCall> call_;
  FetchAnswer answer_;
  bool late_ = false;
};

}  // namespace

absl::StatusOr<FetchAnswer> FetchText(EventLoop& loop, HttpClient& http, HttpEndpoint endpoint, HttpRequestHead head,
                                      const std::string& body, std::chrono::milliseconds limit) {
  HttpRequest request;
  request.endpoint = std::move(endpoint);
  request.head = std::move(head);
  request.head.headers.Add("User-Agent", "millrace");
  request.body = AsBytes(body);
  // A kept connection may have ended; a new one costs nothing at this rate.
  request.fresh_connection = true;
  TextFetch fetch;
  std::future<absl::StatusOr<FetchAnswer>> answer = fetch.answer();
  RunAndWait(loop, [&] { fetch.Start(loop, http, std::move(request), limit); });
  absl::StatusOr<FetchAnswer> result = answer.get();
  RunAndWait(loop, [] {});  // OnDone has returned
  return result;
}

}  // namespace millrace
