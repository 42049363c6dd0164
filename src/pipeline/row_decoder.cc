#include "pipeline/row_decoder.h"

#include "pipeline/sample_decoder.h"
#include "pipeline/token_decoder.h"

namespace millrace {

void BatchRow::SetOrigin(uint64_t sample, size_t part) const {
  StoreLe(At("sample").data(), sample);
  if (const MutableByteSpan number = At("part"); !number.empty()) StoreLe(number.data(), uint64_t{part});
  At("valid").front() = std::byte{valid};
}

std::unique_ptr<RowDecoder> MakeRowDecoder(const LoaderPlan& plan, ImageMemory* memory) {
  if (plan.source.tokens() != nullptr) return std::make_unique<TokenDecoder>(plan);
  return std::make_unique<SampleDecoder>(plan, memory);
}

}  // namespace millrace
