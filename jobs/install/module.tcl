#%Module
# For Environment Modules, and Lmod. Which version this is, and where the program is, it knows from
# its own path, PREFIX/share/modulefiles/lockstep/VERSION.
set version [file tail $ModulesCurrentModulefile]
set prefix [file normalize [file join [file dirname $ModulesCurrentModulefile] .. .. ..]]

module-whatis "lockstep $version: trains ResNets with synchronous SGD on many ranks"
proc ModulesHelp {} {
  puts stderr {Puts lockstep and its manual page into the path: lockstep --help, man lockstep.
Its MPI and its libraries are not loaded.}
}
conflict lockstep

prepend-path PATH $prefix/bin
# man and bash-completion 2.12 look next to PATH, too, unless the variable names all folders: it is
# set and has no empty one.
foreach {variable folder} [list MANPATH $prefix/share/man XDG_DATA_DIRS $prefix/share] {
  if {[info exists env($variable)] && $env($variable) ne {}} {
    set folders [split $env($variable) :]
    if {$folder in $folders || {} ni $folders} {
      prepend-path $variable $folder
    }
  }
}
