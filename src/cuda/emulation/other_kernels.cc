// Kernels that are not made for each op, for the host.
#include "cuda/emulation/device.h"

#include "cuda/kernels/argmax.cu"
#include "cuda/kernels/exchange.cu"
#include "cuda/kernels/few_columns.cu"
#include "cuda/kernels/large_products.cu"
#include "cuda/kernels/lookup.cu"
#include "cuda/kernels/matmul.cu"
#include "cuda/kernels/memory.cu"
#include "cuda/kernels/updates.cu"

namespace dyc::cuda {

namespace {

template <uint32_t... number>
void add_rules(emulation::Kernels& to, std::integer_sequence<uint32_t, number...>) {
  const auto add = [&](uint32_t n, const char* active, emulation::Run run) {
    to.push_back({"updates", "update<" + std::to_string(n) + ", " + active + ">", run});
  };
  (add(number, "true", emulation::run<update<number, true>>), ...);
  (add(number, "false", emulation::run<update<number, false>>), ...);
}

// `sums`: the further arguments of the template.
template <class... Sums>
void add_large_products(emulation::Kernels& to, const std::string& sums) {
  const auto add = [&](const char* kind, emulation::Run run) {
    to.push_back({"large_products", "large_product<" + (kind + sums) + ">", run});
  };
  add("true, false", emulation::run<large_product<true, false, Sums...>>);
  add("false, false", emulation::run<large_product<false, false, Sums...>>);
  add("true, true", emulation::run<large_product<true, true, Sums...>>);
}

const emulation::Registration kSources([](emulation::Kernels& to) {
  using emulation::run;
  add_rules(to, std::make_integer_sequence<uint32_t, kUpdateRules>());
  add_large_products(to, "");
  add_large_products<TensorSums<Tf32>>(to, ", TensorSums<Tf32>");
  add_large_products<TensorSums<Bf16>>(to, ", TensorSums<Bf16>");
  for (const emulation::Kernel& kernel : {
           emulation::Kernel{"argmax", "argmax", run<argmax>},
           {"exchange", "take_array", run<take_array>},
           {"few_columns", "few_columns<true>", run<few_columns<true>>},
           {"few_columns", "few_columns<false>", run<few_columns<false>>},
           {"lookup", "lookup_forward", run<lookup_forward>},
           {"matmul", "product<true, false>", run<product<true, false>>},
           {"matmul", "product<false, false>", run<product<false, false>>},
           {"matmul", "product<true, true>", run<product<true, true>>},
           {"matmul", "product<true, false, kSmallTile>", run<product<true, false, kSmallTile>>},
           {"matmul", "product<false, false, kSmallTile>", run<product<false, false, kSmallTile>>},
           {"matmul", "product<true, true, kSmallTile>", run<product<true, true, kSmallTile>>},
           {"memory", "add_few", run<add_few>},
           {"memory", "add_many", run<add_many>},
           {"memory", "gather", run<gather>},
           {"updates", "normalise", run<normalise>},
           {"updates", "squares", run<squares>},
           {"updates", "total", run<total>},
       })
    to.push_back(kernel);
});

}  // namespace

}  // namespace dyc::cuda
