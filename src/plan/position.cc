#include "plan/position.h"

#include <algorithm>
#include <charconv>

#include "base/rng.h"
#include "fmt/format.h"

namespace millrace {
namespace {

/// Of the construction of the order. Any change that moves a sample raises it (plan_golden_test.cc notices).
constexpr uint64_t kVersion = 2;
constexpr uint64_t kOrderDomain = 0x4d522d6f72646572;  // "MR-order"
constexpr uint64_t kMixDomain = 0x4d522d6d69782d6f;    // "MR-mix-o"

/// Takes what comes before the next '-' off the front, and the '-' too. False where there is none.
bool TakeField(std::string_view* text, std::string_view* token) {
  const size_t at = text->find('-');
  if (at == std::string_view::npos) return false;
  *token = text->substr(0, at);
  text->remove_prefix(at + 1);
  return true;
}

/// The one way to write a number: no sign, no blanks, no leading zeros; in base 16 lower-case.
bool ParseNumber(std::string_view text, int base, uint64_t* value) {
  const bool digits = std::all_of(text.begin(), text.end(), [base](char c) {
    return (c >= '0' && c <= '9') || (base == 16 && c >= 'a' && c <= 'f');
  });
  if (!digits || text.empty() || (base == 10 && text.size() > 1 && text[0] == '0')) return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

/// Part of an error message: what was read, printable and short.
std::string Quoted(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out.push_back(c >= ' ' && c <= '~' ? c : '?');
  return fmt::format("\"{}\"{}", out, text.size() > 80 ? "..." : "");
}

}  // namespace

std::string Position::ToString() const {
  return fmt::format("mr{}-{}-{}-{:016x}", kVersion, epoch, consumed, fingerprint);
}

absl::StatusOr<Position> Position::Parse(std::string_view text) {
  const auto malformed = [text] {
    return absl::InvalidArgumentError(
        fmt::format("{} is not a position: expected mr{}-<epoch>-<samples>-<16 hex digits>, as in the \"position\" "
                    "that feed prints",
                    Quoted(text), kVersion));
  };
  std::string_view rest = text;
  std::string_view version;
  std::string_view epoch;
  std::string_view consumed;
  if (!rest.starts_with("mr")) return malformed();
  rest.remove_prefix(2);
  uint64_t number = 0;
  if (!TakeField(&rest, &version) || !ParseNumber(version, 10, &number)) return malformed();
  if (number != kVersion) {
    return absl::InvalidArgumentError(fmt::format(
        "position {} is of version {} of the order of samples, and this release makes version {}, in which the same "
        "position leads to other samples: go on with a {} release of Millrace, or start anew without a position",
        Quoted(text), number, kVersion, number < kVersion ? "former" : "newer"));
  }
  Position position;
  if (!TakeField(&rest, &epoch) || !ParseNumber(epoch, 10, &position.epoch) || !TakeField(&rest, &consumed) ||
      !ParseNumber(consumed, 10, &position.consumed) || rest.size() != 16 ||
      !ParseNumber(rest, 16, &position.fingerprint)) {
    return malformed();
  }
  return position;
}

uint64_t OrderFingerprint(uint64_t index_fingerprint, uint64_t samples, const OrderPolicy& policy, uint64_t seed) {
  const bool windowed = policy.shuffle == Shuffle::kWindow;  // the other orders do not depend on b, K, L
  return HashKey(kOrderDomain,
                 {kVersion, index_fingerprint, samples, seed, static_cast<uint64_t>(policy.shuffle),
                  windowed ? policy.extent : 0, windowed ? policy.window : 0, windowed ? policy.lanes : 0});
}

uint64_t OrderFingerprint(std::span<const uint64_t> part_fingerprints, const Mix& mix, uint64_t seed) {
  const bool exact = mix.draws == Draws::kExact;  // otherwise neither passes nor the orders of parts matter
  uint64_t hash = HashKey(kMixDomain, {kVersion, seed, mix.length, mix.parts.size(), static_cast<uint64_t>(mix.draws),
                                       exact && mix.fresh_passes ? 1u : 0u});
  for (size_t i = 0; i < mix.parts.size(); ++i) {
    const Mix::Part& part = mix.parts[i];
    hash = HashKey(hash, {OrderFingerprint(part_fingerprints[i], part.items, exact ? part.policy : OrderPolicy{}, 0)});
  }
  for (const Mix::Stage& stage : mix.stages) {
    hash = HashKey(hash, {stage.from});
    for (const uint64_t weight : stage.weights) hash = HashKey(hash, {weight});
  }
  return hash;
}

absl::StatusOr<LastBatch> ParseLastBatch(std::string_view text) {
  if (text == "drop") return LastBatch::kDrop;
  if (text == "pad") return LastBatch::kPad;
  if (text == "wrap") return LastBatch::kWrap;
  return absl::InvalidArgumentError(
      fmt::format("unknown policy for the last batch \"{}\": use drop, pad or wrap", text));
}

absl::Status Batching::Check() const {
  if (batch < 1 || batch > kMaxBatch) {
    return absl::InvalidArgumentError(fmt::format("a batch has 1 to {} samples, not {}", kMaxBatch, batch));
  }
  if (world < 1 || world > kMaxWorld) {
    return absl::InvalidArgumentError(fmt::format("a world has 1 to {} ranks, not {}", kMaxWorld, world));
  }
  if (rank >= world) {
    return absl::InvalidArgumentError(
        fmt::format("rank {} is not in a world of {}: ranks are 0 to {}", rank, world, world - 1));
  }
  if (samples == 0) return absl::InvalidArgumentError("an epoch without samples has no batches");
  if (last == LastBatch::kDrop && samples < batch * world) {
    return absl::InvalidArgumentError(
        fmt::format("an epoch of {} samples has no full step of {} ranks x {} samples, and the last batch is dropped: "
                    "use smaller batches, pad "
                    "or wrap",
                    samples, world, batch));
  }
  return absl::OkStatus();
}

uint64_t Batching::StepsFrom(uint64_t consumed) const {
  if (consumed >= samples) return 0;
  const uint64_t left = samples - consumed;
  const uint64_t step = batch * world;
  return left / step + (last != LastBatch::kDrop && left % step != 0 ? 1 : 0);
}

uint64_t Batching::FirstPosition(uint64_t consumed) const {
  return consumed + (rank + world - consumed % world) % world;
}

uint64_t Batching::Taken(uint64_t consumed) const {
  const uint64_t first = FirstPosition(consumed);
  return first >= samples ? 0 : std::min(batch, (samples - first + world - 1) / world);
}

Batching::Slot Batching::At(uint64_t consumed, uint64_t row) const {
  const uint64_t position = FirstPosition(consumed) + row * world;
  if (position < samples) return {position, false};
  if (last == LastBatch::kWrap) return {(position - samples) % samples, true};
  return {samples, true};
}

uint64_t Batching::End(uint64_t consumed) const {
  return last == LastBatch::kDrop ? consumed + StepsFrom(consumed) * batch * world : samples;
}

uint64_t Batching::After(uint64_t consumed) const {
  const uint64_t step = batch * world;
  const uint64_t next = samples - consumed <= step ? samples : consumed + step;
  return last == LastBatch::kDrop && samples - next < step ? samples : next;
}

}  // namespace millrace
