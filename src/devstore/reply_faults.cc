#include "devstore/reply_faults.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

/// Returns a part of a step that has bytes.
ReplyStep Slice(const ReplyStep& step, uint64_t offset, uint64_t length) {
  if (const auto* text = std::get_if<SendText>(&step)) return SendText{text->text.substr(offset, length)};
  if (const auto* bytes = std::get_if<SendBytes>(&step))
    return SendBytes{bytes->bytes.subspan(offset, length), bytes->owner};
  const auto& file = std::get<SendFile>(step);
  return SendFile{file.file, {file.range.offset + offset, length}};
}

/// Makes a boundary of steps at `offset` of the body; the result is the index of the step that begins there.
size_t SplitAt(uint64_t offset, std::vector<ReplyStep>* body) {
  for (size_t i = 0; i < body->size(); ++i) {
    if (offset == 0) return i;
    const uint64_t size = StepSize((*body)[i]);
    if (offset < size) {
      const ReplyStep first = Slice((*body)[i], 0, offset);
      (*body)[i] = Slice((*body)[i], offset, size - offset);
      body->insert(body->begin() + static_cast<ptrdiff_t>(i), first);
      return i + 1;
    }
    offset -= size;
  }
  return body->size();
}

void Flip(uint64_t offset, std::vector<ReplyStep>* body) {
  if (offset >= BodySize(*body)) return;
  const size_t at = SplitAt(offset, body);
  SplitAt(offset + 1, body);
  ReplyStep& step = (*body)[at];
  char byte = 0;
  if (const auto* text = std::get_if<SendText>(&step)) {
    byte = text->text[0];
  } else if (const auto* bytes = std::get_if<SendBytes>(&step)) {
    byte = static_cast<char>(bytes->bytes[0]);
  } else {
    const auto& file = std::get<SendFile>(step);
    if (pread(file.file->get(), &byte, 1, static_cast<off_t>(file.range.offset)) != 1) return;
  }
  step = SendText{std::string(1, static_cast<char>(byte ^ 1))};
}

void End(const FaultAction& fault, bool reset, HttpReply* reply) {
  reply->content_length = reply->content_length.value_or(BodySize(reply->body));
  if (fault.at_head) {
    reply->send_head = fault.offset > 0;
    reply->head_bytes = fault.offset;
    reply->body.clear();
  } else {
    const size_t end = SplitAt(fault.offset, &reply->body);
    reply->body.erase(reply->body.begin() + static_cast<ptrdiff_t>(end), reply->body.end());
  }
  reply->body.emplace_back(EndConnection{reset});
}

/// Sends a body in chunks, one for each step. A body that ends at `end` lacks the last chunk, and so its end.
void Chunk(uint64_t end, HttpReply* reply) {
  const bool cut = end < BodySize(reply->body);
  if (cut) reply->body.resize(SplitAt(end, &reply->body));
  std::vector<ReplyStep> framed;
  for (ReplyStep& step : reply->body) {
    const uint64_t size = StepSize(step);
    if (size > 0) framed.emplace_back(SendText{fmt::format("{:x}\r\n", size)});
    framed.push_back(std::move(step));
    if (size > 0) framed.emplace_back(SendText{"\r\n"});
  }
  framed.emplace_back(cut ? ReplyStep(EndConnection{}) : ReplyStep(SendText{"0\r\n\r\n"}));
  reply->body = std::move(framed);
  reply->chunked = true;
}

}  // namespace

void LimitRate(uint64_t bytes_per_second, HttpReply* reply) {
  for (ReplyStep& step : reply->body) {
    if (auto* rate = std::get_if<SendRate>(&step)) {
      rate->bytes_per_second = std::min(rate->bytes_per_second, bytes_per_second);
      return;
    }
  }
  reply->body.emplace(reply->body.begin(), SendRate{bytes_per_second});
}

void ApplyFault(const FaultAction& fault, HttpReply* reply) {
  switch (fault.kind) {
    case FaultKind::kDelay:
      reply->not_before =
          std::max(reply->not_before, std::chrono::steady_clock::now()) + std::chrono::milliseconds(fault.value);
      break;
    case FaultKind::kRate:
      LimitRate(fault.value, reply);
      break;
    case FaultKind::kStall: {
      if (fault.offset >= BodySize(reply->body)) break;
      const size_t at = SplitAt(fault.offset, &reply->body);
      reply->body.emplace(reply->body.begin() + static_cast<ptrdiff_t>(at),
                          SendPause{std::chrono::milliseconds(fault.value)});
      break;
    }
    case FaultKind::kCut:
      End(fault, /*reset=*/false, reply);
      break;
    case FaultKind::kReset:
      End(fault, /*reset=*/true, reply);
      break;
    case FaultKind::kClose:
      reply->headers.Add("Connection", "close");
      reply->body.emplace_back(EndConnection{});
      break;
    case FaultKind::kChunked:
      Chunk(fault.offset, reply);
      break;
    case FaultKind::kFlip:
      Flip(fault.offset, &reply->body);
      break;
    case FaultKind::kStatus:
    case FaultKind::kError:
    case FaultKind::kRetryAfter:
    case FaultKind::kLimit:
    case FaultKind::kWrongRange:
    case FaultKind::kShortRange:
    case FaultKind::kWholeBody:
    case FaultKind::kNewETag:
    case FaultKind::kErrorIn200:
    case FaultKind::kSkipKey:
      break;
  }
}

ByteRange WrongRange(ByteRange range, uint64_t object_size) {
  if (object_size - range.end() >= range.length) return {range.end(), range.length};
  if (range.offset >= range.length) return {range.offset - range.length, range.length};
  if (range.end() < object_size) return {range.offset + 1, range.length};
  if (range.offset > 0) return {range.offset - 1, range.length};
  return range.length > 1 ? ByteRange{1, range.length - 1} : range;
}

}  // namespace millrace
