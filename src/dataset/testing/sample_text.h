#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "dataset/dataset.h"
#include "store/blocking.h"

namespace millrace::testing {

/// Returns "key: field=value field=value" of one sample, for EXPECT_EQ. Its bytes are read as the index tells, and
/// their checksums are verified.
inline std::string SampleText(const Dataset& dataset, const IndexedSample& sample) {
  IndexedObject object;
  EXPECT_TRUE(dataset.index().LookupObject(sample.object, &object).ok());
  std::string span(sample.span.length, '\0');
  GetOptions get;
  get.range = sample.span;
  get.if_match = object.etag;
  if (!span.empty() && sample.crc32c) get.checksums.push_back({sample.span, *sample.crc32c});
  const auto got = GetBlocking(dataset.store(), dataset.StoreKey(object.key), AsWritableBytes(span), std::move(get));
  EXPECT_TRUE(got.ok()) << got.status();
  std::string text = sample.key + ":";
  for (const IndexedField& field : sample.fields) {
    text +=
        fmt::format(" {}={}", field.name,
                    field.is_inline ? field.inline_text : std::string_view(span).substr(field.offset, field.length));
  }
  return text;
}

}  // namespace millrace::testing
