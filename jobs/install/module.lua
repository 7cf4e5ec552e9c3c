-- For Lmod. Which version this is, and where the program is, it knows from its own path,
-- PREFIX/share/modulefiles/lockstep/VERSION.lua.
local prefix = myFileName():gsub("/share/modulefiles/lockstep/[^/]*$", "")

whatis("Name: lockstep")
whatis("Version: " .. myModuleVersion())
whatis("Description: trains ResNets with synchronous SGD on many ranks")
help([[Puts lockstep and its manual page into the path: lockstep --help, man lockstep.
Its MPI and its libraries are not loaded.]])
conflict("lockstep")

prepend_path("PATH", pathJoin(prefix, "bin"))
-- man and bash-completion 2.12 look next to PATH, too, unless the variable names all folders: it is
-- set and has no empty one.
for variable, sub in pairs({MANPATH = "share/man", XDG_DATA_DIRS = "share"}) do
  local folder = pathJoin(prefix, sub)
  local folders = ":" .. (os.getenv(variable) or "") .. ":"
  if folders:find(":" .. folder .. ":", 1, true) or not folders:find("::", 1, true) then
    prepend_path(variable, folder)
  end
end
