#include "net/text_answer.h"

#include <memory>
#include <utility>

namespace millrace {

namespace {

/// Keeps itself alive until the answer is told: the caller may be gone as soon as it has it, while the loop is still in
/// OnDone.
class TextCall final : public HttpResponseHandler {
 public:
  explicit TextCall(size_t max_text) : max_text_(max_text) {}

  static std::future<TextAnswer> Begin(HttpClient& client, EventLoop& loop, HttpRequest request, size_t max_text) {
    auto call = std::make_shared<TextCall>(max_text);
    std::future<TextAnswer> answer = call->promise_.get_future();
    loop.Post([&client, &loop, call, request = std::move(request)]() mutable {
      call->self_ = call;
      client.Start(loop, std::move(request), *call);
    });
    return answer;
  }

  void OnPhase(HttpPhase) override {}
  HttpBodySink OnHead(const HttpResponseHead& head) override {
    answer_.status = head.status;
    return HttpBodySink::Text(max_text_);
  }
  void OnDone(HttpResult result) override {
    const std::shared_ptr<TextCall> self = std::move(self_);
    answer_.result = std::move(result);
    promise_.set_value(std::move(answer_));
  }

 private:
  const size_t max_text_;
  TextAnswer answer_;
  std::promise<TextAnswer> promise_;
  std::shared_ptr<TextCall> self_;
};

}  // namespace

std::future<TextAnswer> AskForText(HttpClient& client, EventLoop& loop, HttpRequest request, size_t max_text) {
  return TextCall::Begin(client, loop, std::move(request), max_text);
}

}  // namespace millrace
