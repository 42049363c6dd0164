#include "plan/position.h"

#include <algorithm>
#include <charconv>

#include "base/rng.h"
#include "fmt/format.h"

namespace millrace {
namespace {

/// This is the version of the construction of the order. Any change that moves a sample raises it (plan_golden_test.cc
/// notices).
constexpr uint64_t kPositionVersion = 2;
constexpr uint64_t kOrderDomain = 0x4d522d6f72646572;  // "MR-order"
constexpr uint64_t kMixDomain = 0x4d522d6d69782d6f;    // "MR-mix-o"

/// Takes what comes before the next '-' off the front, and the '-' too. False if there is no '-'.
bool TakeField(std::string_view* text, std::string_view* token) {
  const size_t at = text->find('-');
  if (at == std::string_view::npos) return false;
  *token = text->substr(0, at);
  text->remove_prefix(at + 1);
  return true;
}

/// There is one way to write a number: no sign, no blanks, no leading zeros; in base 16 lower-case.
bool ParseNumber(std::string_view text, int base, uint64_t* value) {
  const bool digits = std::all_of(text.begin(), text.end(), [base](char c) {
    return (c >= '0' && c <= '9') || (base == 16 && c >= 'a' && c <= 'f');
  });
  if (!digits || text.empty() || (base == 10 && text.size() > 1 && text[0] == '0')) return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

/// Returns a part of an error message: the text that was read, printable and short.
std::string Quoted(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out.push_back(c >= ' ' && c <= '~' ? c : '?');
  return fmt::format("\"{}\"{}", out, text.size() > 80 ? "..." : "");
}

}  // namespace

std::string Position::ToString() const {
  if (stage) {
    return fmt::format("mr{}-{}-{}-{}-{}-{:016x}", kStagedPositionVersion, epoch, consumed, stage->number,
                       stage->before, fingerprint);
  }
  return fmt::format("mr{}-{}-{}-{:016x}", kPositionVersion, epoch, consumed, fingerprint);
}

absl::StatusOr<Position> Position::Parse(std::string_view text) {
  const auto malformed = [text] {
    return absl::InvalidArgumentError(
        fmt::format("{} is not a position: expected mr{}-<epoch>-<samples>-<16 hex digits>, as in the \"position\" "
                    "that feed prints",
                    Quoted(text), kPositionVersion));
  };
  std::string_view rest = text;
  std::string_view version;
  if (!rest.starts_with("mr")) return malformed();
  rest.remove_prefix(2);
  uint64_t number = 0;
  if (!TakeField(&rest, &version) || !ParseNumber(version, 10, &number)) return malformed();
  if (number != kPositionVersion && number != kStagedPositionVersion) {
    return absl::InvalidArgumentError(fmt::format(
        "position {} is of version {} of the order of samples, and this release makes version {}, where it means other "
        "samples: continue with a {} release, or start again without a position",
        Quoted(text), number, kPositionVersion, number < kPositionVersion ? "former" : "newer"));
  }
  Position position;
  const auto take = [&rest](uint64_t* value) {
    std::string_view token;
    return TakeField(&rest, &token) && ParseNumber(token, 10, value);
  };
  if (!take(&position.epoch) || !take(&position.consumed)) return malformed();
  if (number == kStagedPositionVersion) {
    Position::Stage& stage = position.stage.emplace();
    if (!take(&stage.number) || !take(&stage.before)) return malformed();
  }
  if (rest.size() != 16 || !ParseNumber(rest, 16, &position.fingerprint)) return malformed();
  return position;
}

uint64_t OrderFingerprint(uint64_t index_fingerprint, uint64_t samples, const OrderPolicy& policy, uint64_t seed) {
  const bool windowed = policy.shuffle == Shuffle::kWindow;  // the other orders do not depend on b, K, L
  return HashKey(kOrderDomain,
                 {kPositionVersion, index_fingerprint, samples, seed, static_cast<uint64_t>(policy.shuffle),
                  windowed ? policy.extent : 0, windowed ? policy.window : 0, windowed ? policy.lanes : 0});
}

uint64_t OrderFingerprint(std::span<const uint64_t> part_fingerprints, const Mix& mix, uint64_t seed) {
  const bool exact = mix.draws == Draws::kExact;  // otherwise neither passes nor the orders of parts matter
  uint64_t hash = HashKey(kMixDomain, {kPositionVersion, seed, mix.length, mix.parts.size(),
                                       static_cast<uint64_t>(mix.draws), exact && mix.fresh_passes ? 1u : 0u});
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

}  // namespace millrace
