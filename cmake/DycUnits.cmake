# Which files are compiled together. Headers cost a file more than its own text does, pybind11's most of all:
# the inline functions of each are compiled once for each unit.
option(DYC_UNITS "Compile some files together: all take half the time, one that has changed takes longer" ON)

# Makes files of src/ one unit, listed in dyc_unit_<name>. Names in their unnamed namespaces must differ.
function(dyc_unit name)
  list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/src/")
  file(GLOB files CONFIGURE_DEPENDS ${ARGN})
  set_source_files_properties(${files} PROPERTIES UNITY_GROUP ${name})
  set(dyc_unit_${name} ${files} PARENT_SCOPE)
endfunction()

# The recorder (the other files of graph/) is as fast only if each of its files is compiled alone.
dyc_unit(plan plan/*.cc)
dyc_unit(segments graph/loop_nest.cc graph/segment_schedule.cc)
dyc_unit(ops base/arena.cc base/background_thread.cc base/dim.cc base/lasting_memory.cc base/storage.cc
  base/thread_pool.cc ops/*.cc)
dyc_unit(builders model/builders*.cc model/collection.cc model/initialisers.cc model/moving_average.cc)
dyc_unit(trainers model/numbers.cc model/trainer*.cc)
dyc_unit(cuda cuda/driver/*.cc)
dyc_unit(cpu_executor exec/*.cc exec/cpu/backward.cc exec/cpu/backward_order.cc exec/cpu/column_losses.cc
  exec/cpu/custom.cc exec/cpu/forward.cc exec/cpu/gradient_aliases.cc exec/cpu/gradient_clearing.cc
  exec/cpu/launches_by_offset.cc)
dyc_unit(cuda_executor exec/cuda/*.cc)
dyc_unit(arguments bindings/arrays.cc bindings/errors.cc bindings/inputs.cc
  bindings/parameters.cc bindings/argmax.cc)
dyc_unit(background bindings/background.cc bindings/background_payoff.cc)
dyc_unit(programs bindings/region_program.cc bindings/region_walked_function.cc bindings/region_spec.cc)
dyc_unit(walk bindings/region_walk.cc bindings/region_walk_*.cc)
dyc_unit(module bindings/builders.cc bindings/fibers.cc bindings/model.cc bindings/module.cc)

# Bindings that no recording and no reading of values passes through: -O1.
dyc_unit(classes bindings/files.cc bindings/signatures.cc)
# These convert standard containers, which the bindings of files.cc must not.
dyc_unit(states bindings/copies.cc bindings/gradients.cc bindings/trainer_state.cc)
dyc_unit(views bindings/debug.cc bindings/devices.cc bindings/documentation.cc
  bindings/initialisers.cc bindings/plan_view.cc bindings/tensor.cc bindings/call_site.cc
  bindings/op_lines.cc bindings/exchange.cc bindings/user_ops.cc)
set(dyc_seldom ${dyc_unit_classes} ${dyc_unit_states} ${dyc_unit_views})
