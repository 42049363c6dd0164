#include "pipeline/row_decoder.h"

#include "pipeline/sample_decoder.h"
#include "pipeline/token_decoder.h"

namespace millrace {

std::unique_ptr<RowDecoder> MakeRowDecoder(const LoaderPlan& plan) {
  if (plan.source.tokens() != nullptr) return std::make_unique<TokenDecoder>(plan);
  return std::make_unique<SampleDecoder>(plan);
}

}  // namespace millrace
