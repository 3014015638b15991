//! A packaged kernel with support for queueing disciplines in eBPF (`CONFIG_NET_SCH_BPF`, from
//! Linux 6.16 on): Debian's newest one for the stable release, from the mirror that this machine's
//! own apt uses.
//!
//! It is unpacked below `target/` and not installed. apt has a separate configuration here, with
//! one suite in it; it fetches the suite's index at most once a day.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Where Debian keeps new kernels.
const SUITE: &str = "trixie-backports";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const INDEX_IS_FRESH: Duration = Duration::from_secs(86_400);

/// The unpacked files of a kernel.
pub(crate) struct Kernel {
    /// The folder with `vmlinuz` and the modules.
    folder: PathBuf,
}

impl Kernel {
    /// The newest kernel of a flavour that the suite has, or, without a network, the newest fetched
    /// before; otherwise the missing requirement. `cloud-amd64` has no drivers for hardware, and is
    /// a quarter of `amd64`.
    pub(crate) fn newest(flavour: &str) -> Result<Self, String> {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
        let fetched = Apt::new(&home).and_then(|apt| {
            let version = apt.newest(flavour)?;
            let folder = home.join(&version);
            if !folder.exists() {
                apt.unpack(&version, &folder)?;
            }
            Ok(version)
        });
        let version = match fetched {
            Ok(version) => version,
            Err(missing) => unpacked(&home, flavour).ok_or(missing)?,
        };
        let folder = home.join(&version).join("usr/lib/modules").join(version);
        Ok(Self { folder })
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    /// The file of a module; none if the kernel has it built in, or has not got it.
    pub(crate) fn module(&self, name: &str) -> Option<PathBuf> {
        let mut folders = vec![self.folder.join("kernel")];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()) {
                let file = path.file_name()?.to_str()?.replace('-', "_");
                if path.is_dir() {
                    folders.push(path);
                } else if file.split('.').next() == Some(name) && file.contains(".ko") {
                    return Some(path);
                }
            }
        }
        None
    }
}

/// Whether a version such as `7.3.4+deb13-cloud-amd64` is of a flavour.
fn is_of(version: &str, flavour: &str) -> bool {
    version.starts_with(char::is_numeric)
        && version.split_once('-').is_some_and(|(_, rest)| rest == flavour)
}

/// The newest version that is there.
fn unpacked(home: &Path, flavour: &str) -> Option<String> {
    let names = fs::read_dir(home).ok()?.flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_of(name, flavour)).max_by_key(|version| numbers(version))
}

/// `apt-get` and its kin with files of their own.
struct Apt {
    home: PathBuf,
    configuration: PathBuf,
}

impl Apt {
    fn new(home: &Path) -> Result<Self, String> {
        let mirror =
            said(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))
                .map_err(|_| "apt-get")?;
        let mirror = mirror.lines().find(|uri| uri.ends_with("/debian/"));
        let mirror = mirror.ok_or("a mirror of Debian among apt's sources")?;
        let apt = Self { home: home.to_owned(), configuration: home.join("apt.conf") };
        let folder = home.join("apt");
        for empty in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(empty)).map_err(|error| error.to_string())?;
        }
        let signed = if Path::new(KEYRING).exists() {
            format!("[signed-by={KEYRING}] ")
        } else {
            String::new()
        };
        let path = folder.display();
        let configuration = format!(
            "Dir::Etc::main \"-\";\nDir::Etc::parts \"-\";\nDir::Etc::sourceparts \"-\";\n\
             Dir::Etc::preferences \"-\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::Etc::sourcelist \"{path}/sources.list\";\nDir::State \"{path}\";\n\
             Dir::State::status \"{path}/status\";\nDir::Cache \"{path}\";\n\
             APT::Sandbox::User \"\";\nAPT::Architecture \"amd64\";\nAPT::Update::Error-Mode \"any\";\n\
             Acquire::Languages \"none\";\nAcquire::Retries \"1\";\nAcquire::http::Timeout \"20\";\n\
             Acquire::https::Timeout \"20\";\n{}",
            proxies()
        );
        let sources = format!("deb {signed}{mirror} {SUITE} main\n");
        for (file, text) in [
            (folder.join("sources.list"), sources),
            (folder.join("status"), String::new()),
            (apt.configuration.clone(), configuration),
        ] {
            fs::write(file, text).map_err(|error| error.to_string())?;
        }
        apt.update()?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.configuration);
        command
    }

    fn update(&self) -> Result<(), String> {
        let stamp = self.home.join("updated");
        let age = fs::metadata(&stamp)
            .and_then(|file| file.modified())
            .map(|then| SystemTime::now().duration_since(then).unwrap_or_default());
        if age.is_ok_and(|age| age < INDEX_IS_FRESH) {
            return Ok(());
        }
        said(self.command("apt-get").args(["-qq", "update"]))
            .map_err(|_| format!("a network with a mirror of Debian's {SUITE}"))?;
        fs::write(stamp, "").map_err(|error| error.to_string())
    }

    /// The newest version of which there are image and modules.
    fn newest(&self, flavour: &str) -> Result<String, String> {
        let names = said(self.command("apt-cache").args(["pkgnames", "linux-"]))?;
        let names: Vec<&str> = names.lines().collect();
        let versions = names.iter().filter_map(|name| name.strip_prefix("linux-modules-"));
        let newest = versions
            .filter(|version| is_of(version, flavour))
            .filter(|version| names.contains(&&*format!("linux-binary-{version}")))
            .max_by_key(|version| numbers(version));
        newest.map(str::to_owned).ok_or_else(|| format!("a kernel in Debian's {SUITE}"))
    }

    fn unpack(&self, version: &str, folder: &Path) -> Result<(), String> {
        let part = tempfile::tempdir_in(&self.home).map_err(|error| error.to_string())?;
        let packages = ["binary", "modules"].map(|kind| format!("linux-{kind}-{version}"));
        let mut download = self.command("apt-get");
        said(download.args(["-qq", "download"]).args(packages).current_dir(part.path()))
            .map_err(|_| format!("a network with a mirror of Debian's {SUITE}"))?;
        let files = fs::read_dir(part.path()).map_err(|error| error.to_string())?.flatten();
        let tree = part.path().join("tree");
        for package in files.map(|entry| entry.path()) {
            said(Command::new("dpkg-deb").arg("-x").args([&package, &tree]))?;
        }
        // Another process may have been faster.
        fs::rename(tree, folder).or_else(|error| match folder.exists() {
            true => Ok(()),
            false => Err(error.to_string()),
        })
    }
}

/// How this machine gets to the network, in apt's own words.
fn proxies() -> String {
    let all = said(Command::new("apt-config").arg("dump")).unwrap_or_default();
    let proxies = all
        .lines()
        .filter(|line| line.starts_with("Acquire::http") && line.to_lowercase().contains("proxy"));
    proxies.map(|line| format!("{line}\n")).collect()
}

/// The numbers in a version, which order it.
fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// The output of a command; an error with its output if it fails.
pub(crate) fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|_| name.clone())?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("{name} that works: {}", String::from_utf8_lossy(&done.stderr))),
    }
}
