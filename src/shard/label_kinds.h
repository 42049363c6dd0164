#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

/// Texts in a manifest have these kinds: numbers and labels.

namespace millrace {

/// Returns "line 7: WHAT", as InvalidArgument; `word` is for rows that are not lines.
absl::Status WrongLine(uint64_t line, std::string_view what, std::string_view word = "line");

/// Returns whether it is a whole number as it is printed, of at most 18 digits: "007" is a text.
bool IsIntText(std::string_view text);

/// Returns whether it is a finite number that a float of 64 bits holds: not "007", nor a whole number that it rounds.
bool IsFloatText(std::string_view text);

/// Returns whether a cell is a float: IsFloatText, also with a plus, and texts that Python's float() reads as NaN or
/// infinite.
bool IsFloatCell(std::string_view text);

/// Returns true for "nan" in any case of letters, with or without a sign.
bool IsNanText(std::string_view text);

/// Returns whether it is a word that pandas takes for a missing value, such as N/A. NaN is not such a word.
bool IsMissingWord(std::string_view text);

/// Returns the number of a float cell.
std::optional<double> ParseFloatCell(std::string_view text);

/// Finds the kinds of all labels together.
class LabelKinds {
 public:
  /// `may_be_floats`: numbers need not be those of classes, and NaN among numbers is no label. `word` of messages as in
  /// WrongLine.
  explicit LabelKinds(bool may_be_floats = false, std::string_view word = "line")
      : may_be_floats_(may_be_floats), word_(word) {}

  /// Adds the label of a row, without blanks around it; "" if the row has no label. `quoted` means that the file says
  /// that it is a text.
  void Add(std::string_view label, uint64_t line, bool quoted = false);

  /// Returns InvalidArgument, with the line, for a number that is not that of a class (1.5), and for numbers and names
  /// in one column. Such numbers would be names, and names are numbered by their order: 10 before 9. Numbers with
  /// commas are such an error, too, unless other labels are names. Quoted labels may be names and whole numbers: the
  /// characters 0 to 9 and A to Z.
  absl::Status Check() const;
  bool AllWhole() const { return whole_.count > 0 && texts_.count + odd_.count + padded_.count == 0; }
  /// Returns true if all labels are numbers, and at least one is not whole.
  bool AreFloats() const {
    return may_be_floats_ && texts_.count == 0 && odd_.count + padded_.count > 0 && no_float_.count == 0;
  }

  struct Kind {
    uint64_t count = 0;
    uint64_t line = 0;  // of the first; 0: none
    std::string first;

    void Add(std::string_view label, uint64_t at);
  };
  /// Returns the labels that are NaN, if the others are numbers.
  Kind NoLabels() const { return AllWhole() || AreFloats() ? nan_ : Kind(); }

 private:
  absl::Status CheckTexts() const;
  absl::Status CheckFloats() const;

  const bool may_be_floats_;
  const std::string_view word_;
  Kind whole_;
  Kind odd_;     // other numbers
  Kind padded_;  // "007": among names it is one, a number is not written so
  Kind texts_;
  Kind comma_;  // of these: digits with commas
  bool all_quoted_ = true;
  Kind nan_;       // only where they are no labels
  Kind no_float_;  // of the odd and the padded ones
};

}  // namespace millrace
