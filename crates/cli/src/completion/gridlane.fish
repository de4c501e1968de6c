# Completion of gridlane for fish. In ~/.config/fish/config.fish:
#     gridlane completion fish | source
function __gridlane_complete
    set -l typed (commandline -opc)
    set -l current (commandline -ct)
    set -l found (gridlane complete fish -- $typed "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command gridlane --no-files --arguments '(__gridlane_complete)'
