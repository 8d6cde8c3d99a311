//! A terminal with the shell in it: keys go in, the screen is read.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use vt100::{Callbacks, Color, Parser};

use crate::support::skewer;

/// For what must happen, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// For what may not have happened since a key was pressed too early.
const SOON: Duration = Duration::from_millis(500);

const ROWS: NonZeroU16 = NonZeroU16::new(100).unwrap();
const COLUMNS: NonZeroU16 = NonZeroU16::new(100).unwrap();

/// What the shell writes before it waits for a line.
const PROMPT: &str = "skewer> ";

pub const ENTER: &str = "\r";
pub const TAB: &str = "\t";
pub const UP: &str = "\x1b[A";
pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
const CTRL_L: &str = "\x0c";

/// The shell in a terminal of its own.
pub struct PseudoTerminal {
    child: Child,
    keyboard: File,
    screen: Arc<Screen>,
    /// Prompts that have been waited for.
    prompts: usize,
}

#[derive(Default)]
struct Screen {
    shown: Mutex<Shown>,
    changed: Condvar,
}

struct Shown {
    parser: Parser<Questions>,
    /// The shell is gone.
    ended: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            parser: Parser::new_with_callbacks(ROWS, COLUMNS, 0, Questions::default()),
            ended: false,
        }
    }
}

/// What a program may ask its terminal.
#[derive(Default)]
struct Questions {
    answers: Vec<u8>,
}

impl Callbacks for Questions {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        _: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        command: char,
    ) {
        if (parameters, command) == (&[&[6]], 'n') {
            let (row, column) = screen.cursor_position();
            let answer = format!("\x1b[{};{}R", row + 1, column + 1);
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }
}

impl PseudoTerminal {
    /// Starts the shell, with its history in `state`, and waits for its prompt.
    pub fn start(args: &[&str], state: &Path) -> PseudoTerminal {
        let mut terminal = PseudoTerminal::open(args, state);
        terminal.wait_for_prompt();
        terminal
    }

    /// Starts the shell, with its history in `state`.
    pub fn open(args: &[&str], state: &Path) -> PseudoTerminal {
        let (master, slave) = open_pair();
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let mut command = skewer(args);
        command
            .env("XDG_STATE_HOME", state)
            .stdin(stream())
            .stdout(stream())
            .stderr(stream());
        own_terminal(&mut command);
        let child = command.spawn().expect("the binary starts");
        drop((slave, command));

        let screen = Arc::new(Screen::default());
        let keyboard = File::from(master);
        let from_shell = keyboard.try_clone().unwrap();
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || show(from_shell, &shown));
        PseudoTerminal {
            child,
            keyboard,
            screen,
            prompts: 0,
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a statement or command, and waits until the shell is done with it. Gives what is on
    /// the screen since it was typed.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> String {
        let lines_before = self.text().lines().count();
        self.press(line);
        self.press(ENTER);
        self.wait_for_prompt();
        let text = self.text();
        let since: Vec<_> = text.lines().skip(lines_before.saturating_sub(1)).collect();
        since.join("\n")
    }

    /// The same, again and again, until the shell says `expected`.
    #[track_caller]
    pub fn run_until(&mut self, line: &str, expected: &str) -> String {
        let begun = Instant::now();
        loop {
            // Prompts that leave the screen are not counted.
            self.press(CTRL_L);
            self.wait("an empty screen", |screen| {
                screen.contents().trim_end() == PROMPT.trim_end()
            });
            self.prompts = 1;
            let text = self.run(line);
            if text.contains(expected) {
                return text;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{expected} does not come: {text}"
            );
        }
    }

    /// Waits until what is typed is not shown.
    #[track_caller]
    #[expect(
        unsafe_code,
        reason = "the standard library knows no modes of terminals"
    )]
    pub fn wait_until_hidden(&self) {
        let begun = Instant::now();
        let is_shown = || {
            // SAFETY: plain numbers, which the call fills in.
            let mut modes: libc::termios = unsafe { std::mem::zeroed() };
            // SAFETY: the terminal is open, and the pointer is to a variable.
            let read = unsafe { libc::tcgetattr(self.keyboard.as_raw_fd(), &raw mut modes) };
            assert_eq!(read, 0, "{}", std::io::Error::last_os_error());
            modes.c_lflag & libc::ECHO != 0
        };
        while is_shown() {
            assert!(begun.elapsed() < PATIENCE, "what is typed is shown");
            std::thread::yield_now();
        }
    }

    /// Waits for a prompt that has not been waited for.
    #[track_caller]
    pub fn wait_for_prompt(&mut self) {
        let expected = self.prompts + 1;
        self.wait(&format!("prompt number {expected}"), |screen| {
            prompts(&screen.contents()) >= expected
        });
        self.prompts = expected;
    }

    /// Waits until `text` is on the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Waits until the line with the cursor is `text` behind its prompt.
    #[track_caller]
    pub fn wait_for_line(&self, text: &str) {
        self.wait(&format!("a line {text}"), |screen| line(screen) == text);
    }

    /// Types `text` and presses `key`, until the line is `completed`. What completion knows it
    /// learns in the background, which cannot be seen.
    #[track_caller]
    pub fn complete(&mut self, text: &str, key: &str, completed: &str) {
        let begun = Instant::now();
        loop {
            self.press(text);
            self.wait(text, |screen| line(screen).starts_with(text));
            self.press(key);
            if self.is_soon(|screen| line(screen) == completed) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{text} is not completed:\n{}",
                self.text()
            );
            self.press(CTRL_C);
            self.wait_for_prompt();
        }
    }

    /// The colour in which the last `text` on the screen is written.
    #[track_caller]
    pub fn colour(&self, text: &str) -> Color {
        let shown = self.screen.shown.lock();
        let screen = shown.parser.screen();
        let rows: Vec<String> = screen.rows(0, COLUMNS.get()).collect();
        let (row, column) = rows
            .iter()
            .enumerate()
            .rev()
            .find_map(|(row, line)| Some((row, line.find(text)?)))
            .unwrap_or_else(|| panic!("{text} is not on the screen:\n{}", screen.contents()));
        let cell = screen.cell(row as u16, column as u16).unwrap();
        cell.fgcolor()
    }

    /// Waits for the shell to end.
    pub fn end(mut self) -> ExitStatus {
        self.wait_until("the end", |shown| shown.ended, PATIENCE)
            .unwrap_or_else(|text| panic!("{text}"));
        self.child.wait().unwrap()
    }

    /// What is on the screen.
    pub fn text(&self) -> String {
        self.screen.shown.lock().parser.screen().contents()
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let holds = |shown: &Shown| holds(shown.parser.screen());
        if let Err(text) = self.wait_until(what, holds, PATIENCE) {
            panic!("{text}");
        }
    }

    fn is_soon(&self, holds: impl Fn(&vt100::Screen) -> bool) -> bool {
        let holds = |shown: &Shown| holds(shown.parser.screen());
        self.wait_until("", holds, SOON).is_ok()
    }

    fn wait_until(
        &self,
        what: &str,
        holds: impl Fn(&Shown) -> bool,
        patience: Duration,
    ) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        let mut shown = self.screen.shown.lock();
        while !holds(&shown) {
            let late = self
                .screen
                .changed
                .wait_until(&mut shown, deadline)
                .timed_out();
            if late && !holds(&shown) {
                let text = shown.parser.screen().contents();
                return Err(format!("{what} does not come; the screen is:\n{text}"));
            }
        }
        Ok(())
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts what the shell writes on the screen, and answers what it asks, until it ends.
fn show(mut terminal: File, screen: &Screen) {
    let mut buffer = [0; 4096];
    // The other side's end is an error on Linux.
    while let Ok(read @ 1..) = terminal.read(&mut buffer) {
        let mut shown = screen.shown.lock();
        shown.parser.process(&buffer[..read]);
        let answers = std::mem::take(&mut shown.parser.callbacks_mut().answers);
        drop(shown);
        screen.changed.notify_all();
        // The shell may be gone.
        let _ = terminal.write_all(&answers);
    }
    screen.shown.lock().ended = true;
    screen.changed.notify_all();
}

/// Prompts on the screen; the last one may have text behind it.
fn prompts(contents: &str) -> usize {
    let prompt = PROMPT.trim_end();
    contents
        .lines()
        .filter(|line| line.starts_with(prompt))
        .count()
}

/// What is typed on the line with the cursor.
fn line(screen: &vt100::Screen) -> String {
    let (row, _) = screen.cursor_position();
    let line = screen.rows(0, COLUMNS.get()).nth(usize::from(row));
    let line = line.unwrap_or_default();
    let line = line.strip_prefix(PROMPT).unwrap_or(&line);
    line.trim_end().to_owned()
}

/// A new terminal's two ends.
#[expect(unsafe_code, reason = "the standard library has no pseudo-terminals")]
fn open_pair() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave): (c_int, c_int) = (-1, -1);
    let mut size = libc::winsize {
        ws_row: ROWS.get(),
        ws_col: COLUMNS.get(),
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let none = std::ptr::null_mut();
    // SAFETY: the pointers are to variables that live during the call, or null where that means
    // the default.
    let opened = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            none,
            std::ptr::null_mut(),
            &raw mut size,
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // The shell must not hold its own screen open.
    // SAFETY: both are open, and owned by nobody else.
    unsafe {
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// Makes standard input the controlling terminal, whose Ctrl-C is a signal.
#[expect(
    unsafe_code,
    reason = "the standard library has no sessions of processes"
)]
fn own_terminal(command: &mut std::process::Command) {
    let set = || {
        let stdin = std::io::stdin().as_raw_fd();
        // SAFETY: both are calls of the system without pointers, and safe after a fork.
        let failed =
            unsafe { libc::setsid() == -1 || libc::ioctl(stdin, libc::TIOCSCTTY as _, 0) == -1 };
        match failed {
            true => Err(std::io::Error::last_os_error()),
            false => Ok(()),
        }
    };
    // SAFETY: `set` allocates nothing and takes no locks.
    unsafe { command.pre_exec(set) };
}
