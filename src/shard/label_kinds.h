#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

/// Kinds of the texts in a manifest: numbers and labels.

namespace millrace {

/// "line 7: WHAT", as InvalidArgument.
absl::Status WrongLine(uint64_t line, std::string_view what);

/// A whole number as it is printed, of at most 18 digits: "007" is a text.
bool IsIntText(std::string_view text);

/// A finite number that a float of 64 bits holds: not "007", nor a whole number that it rounds.
bool IsFloatText(std::string_view text);

/// The kinds of all labels together.
class LabelKinds {
 public:
  /// The label of a row, without blanks around it; "" if the row has no label.
  /// `quoted`: the file says that it is a text.
  void Add(std::string_view label, uint64_t line, bool quoted = false);

  /// InvalidArgument, with the line, for a number that is not that of a class (1.5), and for numbers and names in one
  /// column. Such numbers would be names, and names are numbered by their order: 10 before 9. Quoted
  /// labels may be names and whole numbers: the characters 0 to 9 and A to Z.
  absl::Status Check() const;
  bool AllWhole() const { return whole_.count > 0 && texts_.count + odd_.count + padded_.count == 0; }
  /// True if all labels are numbers, and at least one is not whole.
  bool AreFloats() const { return texts_.count == 0 && odd_.count + padded_.count > 0 && all_float_; }

 private:
  struct Kind {
    uint64_t count = 0;
    uint64_t line = 0;  // of the first; 0: none
    std::string first;

    void Add(std::string_view label, uint64_t at);
  };

  absl::Status CheckTexts() const;

  Kind whole_;
  Kind odd_;     // other numbers
  Kind padded_;  // "007": among names it is one, a number is not written so
  Kind texts_;
  bool all_quoted_ = true;
  bool all_float_ = true;  // those that are not whole
};

}  // namespace millrace
