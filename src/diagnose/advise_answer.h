#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnose/advise.h"

/// This header has the answer of `millrace advise`, for readers who pay for a training and do not read its arithmetic.
/// Pure.

namespace millrace {

/// Ways that differ by no more than this share of the time make no difference.
inline constexpr double kNoDifference = 0.05;

/// Prices that differ by less than a cent, or by no more than this share, are one price.
inline constexpr double kCent = 0.01;
inline constexpr double kSamePrice = 0.01;

struct AdviceAnswer {
  CostPrediction chosen;              // the cheapest of those that take the least time; of one price, the simplest
  std::vector<CostPrediction> equal;  // the others that take as long, within kNoDifference, the cheapest first
  std::vector<CostPrediction> other;  // those that take longer, the next best first
};
/// `predictions` have some that can be compared.
AdviceAnswer AnswerOf(const std::vector<CostPrediction>& predictions, const CostInputs& inputs);

/// Returns five lines: what to do, its price, its time, the alternatives, and the limit.
std::vector<std::string> AnswerLines(const Advice& advice, const AdviseSettings& settings);

/// Returns "0.31 s", "12 min 5 s", "3 h 12 min", "2 d 4 h".
std::string TimeText(double seconds);
/// Does the same without digits that a decision does not need: "less than a second", "3.1 s", "31 s".
std::string RoundTimeText(double seconds);

}  // namespace millrace
